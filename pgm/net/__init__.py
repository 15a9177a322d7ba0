"""The only place with sockets and trio: links, drivers, and the sources and receivers that applications open."""
