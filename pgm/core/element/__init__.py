"""Parts shared by aggregators and repairers: sessions by TSI, and the relay."""
