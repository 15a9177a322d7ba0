"""Sockets and system calls: opening, interfaces, raw IP, recvmmsg, Unix sockets."""
