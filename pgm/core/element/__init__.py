"""The shared part of aggregators and repairers: sessions by TSI, and the relay to the segments below."""
