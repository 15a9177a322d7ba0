"""Files for other programs, made from a topology file: systemd, Prometheus, Grafana, Kubernetes."""
