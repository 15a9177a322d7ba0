/* A bare forwarder in the place of a relay, as forwarder.py with `single`:
 *
 *   forwarder GROUP PORT ADDRESS OUT_GROUP OUT_ADDRESS BUFFER
 *
 * It ends when standard input does.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *end_with_input(void *nothing)
{
	char octets[4096];
	while (read(0, octets, sizeof octets) > 0);
	exit(0);
	return nothing;
}

static struct sockaddr_in name(const char *address, int port)
{
	struct sockaddr_in found = { .sin_family = AF_INET, .sin_port = htons(port) };
	found.sin_addr.s_addr = inet_addr(address);
	return found;
}

static void check(int result, const char *what)
{
	if (result >= 0) return;
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	static char octets[65536];
	if (argc != 7) return 2;
	const int port = atoi(argv[2]), buffer = atoi(argv[6]), no = 0;
	const int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in group = name(argv[1], port), own = name(argv[5], 0), to = name(argv[4], port);
	struct ip_mreq membership = { { inet_addr(argv[1]) }, { inet_addr(argv[3]) } };
	check(bind(in, (struct sockaddr *)&group, sizeof group), "bind");
	check(setsockopt(in, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership), "join");
	check(setsockopt(in, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer), "rcvbuf");
	check(bind(out, (struct sockaddr *)&own, sizeof own), "bind");
	check(setsockopt(out, IPPROTO_IP, IP_MULTICAST_IF, &own.sin_addr, sizeof own.sin_addr), "interface");
	check(setsockopt(out, IPPROTO_IP, IP_MULTICAST_LOOP, &no, sizeof no), "loop");
	check(setsockopt(out, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer), "sndbuf");
	check(connect(out, (struct sockaddr *)&to, sizeof to), "connect");
	pthread_t thread;
	pthread_create(&thread, NULL, end_with_input, NULL);
	puts("{\"event\":\"ready\"}");
	fflush(stdout);
	for (;;) {
		const ssize_t count = recv(in, octets, sizeof octets, 0);
		if (count > 0) send(out, octets, count, 0);
	}
}
