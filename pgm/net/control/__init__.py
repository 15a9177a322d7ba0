"""Control of a running node: status socket, control socket, settings."""
