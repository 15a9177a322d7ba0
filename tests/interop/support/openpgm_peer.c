/* OpenPGM's own library as two pipes of lines, for the interoperability tests.
 *
 *   openpgm_peer send ADDRESS GROUP PORT DATA_PORT [KEY=VALUE ...]    standard input: one message a line
 *   openpgm_peer recv ADDRESS GROUP PORT DATA_PORT [KEY=VALUE ...]    standard output: one message a line
 *
 * Both go on until SIGTERM and then close the socket properly. What befalls them goes to standard error, a line each:
 * "ready", "sent N" when the input has ended, "open TSI" and "reset TSI" for a stream's first message and for a loss
 * that the library reports, "end N" at last. The keys are in `settings` below.
 *
 * Two liberties are taken with the library. Its checksum copy uses aligned stores on unaligned buffers and
 * crashes on fragments (INT-Q14): a plain one takes its place here. And a source begins at sqn 0 whatever one wishes: with
 * `first=` the window is found in the socket by what it must hold, and moved before anything is sent.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pgm/pgm.h>

#define MAX_MESSAGE 65536
#define INPUT_SIZE (1 << 20)
#define BUFFER (4 << 20) /* octets of a socket, as far as the kernel grants them: a busy machine lets us wait */
#define SOCKET_SCAN 16384 /* octets of a socket searched for its window: the pointer lies some 6 KB in */

static struct { const char *key; long value; } settings[] = {
	{ "mtu", 1496 },      /* octets of an IP packet */
	{ "rate", 4000000 },  /* octets a second */
	{ "window", 60000 },  /* sqns, of either side */
	{ "ambient", 500 },   /* ms between SPMs */
	{ "heartbeat", 100 }, /* ms from data to the first SPM; then 1, 1, 1, 3, 7, 15, 30 of these */
	{ "first", 0 },       /* sqn of the first packet */
	{ "serve", 1 },       /* calls of pgm_recv for each message sent: repairs leave one a call */
	{ "expiry", 30000 },  /* ms without an SPM until a source is forgotten */
	{ "spmr", 250 },      /* ms */
	{ "backoff", 20 },    /* ms */
	{ "repeat", 100 },    /* ms until a NAK is repeated that was not confirmed */
	{ "rdata", 200 },     /* ms until a NAK is repeated that was confirmed */
	{ "retries", 50 },    /* of either */
};

static long setting(const char *key)
{
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (!strcmp(settings[i].key, key)) return settings[i].value;
	abort();
}

static void take_setting(const char *word)
{
	const char *equals = strchr(word, '=');
	for (size_t i = 0; equals && i < sizeof settings / sizeof *settings; i++)
		if (strlen(settings[i].key) == (size_t)(equals - word) && !memcmp(settings[i].key, word, equals - word)) {
			settings[i].value = atol(equals + 1);
			return;
		}
	fprintf(stderr, "no such setting: %s\n", word);
	exit(2);
}

uint32_t pgm_compat_csum_partial_copy(const void *source, void *target, uint16_t size, uint32_t sum)
{
	uint64_t total = sum;
	uint16_t word = 0;
	const unsigned char *at = target;
	memcpy(target, source, size);
	for (; size > 1; size -= 2, at += 2) {
		memcpy(&word, at, 2);
		total += word;
	}
	if (size) total += *at; /* the machine is little-endian */
	while (total >> 32) total = (total & 0xFFFFFFFF) + (total >> 32);
	return (uint32_t)total;
}

static volatile sig_atomic_t is_stopped;

static void stop(int number)
{
	(void)number;
	is_stopped = 1;
}

static void die(const char *what, pgm_error_t *error)
{
	fprintf(stderr, "%s: %s\n", what, error && error->message ? error->message : "failed");
	exit(1);
}

static void set(pgm_sock_t *sock, int option, const void *value, socklen_t size, const char *name)
{
	if (!pgm_setsockopt(sock, IPPROTO_PGM, option, value, size)) {
		fprintf(stderr, "option %s refused\n", name);
		exit(1);
	}
}
#define SET_INT(sock, option, number) do { const int value_ = (number); set(sock, option, &value_, sizeof value_, #option); } while (0)

static void set_up_sender(pgm_sock_t *sock)
{
	static const int spread[] = { 1, 1, 1, 1, 3, 7, 15, 30 };
	int heartbeats[sizeof spread / sizeof *spread];
	for (size_t i = 0; i < sizeof spread / sizeof *spread; i++) heartbeats[i] = pgm_msecs(spread[i] * setting("heartbeat"));
	SET_INT(sock, PGM_SEND_ONLY, 1);
	SET_INT(sock, PGM_AMBIENT_SPM, pgm_msecs(setting("ambient")));
	set(sock, PGM_HEARTBEAT_SPM, heartbeats, sizeof heartbeats, "PGM_HEARTBEAT_SPM");
	SET_INT(sock, PGM_TXW_SQNS, setting("window"));
	SET_INT(sock, PGM_TXW_MAX_RTE, setting("rate"));
}

static void set_up_receiver(pgm_sock_t *sock)
{
	SET_INT(sock, PGM_RECV_ONLY, 1);
	SET_INT(sock, PGM_RXW_SQNS, setting("window"));
	SET_INT(sock, PGM_PEER_EXPIRY, pgm_msecs(setting("expiry")));
	SET_INT(sock, PGM_SPMR_EXPIRY, pgm_msecs(setting("spmr")));
	SET_INT(sock, PGM_NAK_BO_IVL, pgm_msecs(setting("backoff")));
	SET_INT(sock, PGM_NAK_RPT_IVL, pgm_msecs(setting("repeat")));
	SET_INT(sock, PGM_NAK_RDATA_IVL, pgm_msecs(setting("rdata")));
	SET_INT(sock, PGM_NAK_DATA_RETRIES, setting("retries"));
	SET_INT(sock, PGM_NAK_NCF_RETRIES, setting("retries"));
}

/* The head of the library's transmit window: the session's identifier and an empty window. */
struct window { const pgm_tsi_t *tsi; volatile uint32_t lead, trail; };

static int begins_in(const pgm_sock_t *sock, const void *pointer)
{
	return (const char *)pointer >= (const char *)sock && (const char *)pointer < (const char *)sock + SOCKET_SCAN;
}

static void begin_at(pgm_sock_t *sock, uint32_t first)
{
	const int memory = open("/proc/self/mem", O_RDONLY);
	struct window *found = NULL, *candidate;
	for (size_t at = 0; at < SOCKET_SCAN; at += sizeof candidate) {
		struct window seen;
		if (pread(memory, &candidate, sizeof candidate, (off_t)(uintptr_t)sock + at) != sizeof candidate) continue;
		if (!candidate || pread(memory, &seen, sizeof seen, (off_t)(uintptr_t)candidate) != sizeof seen) continue;
		if (begins_in(sock, seen.tsi) && seen.lead == UINT32_MAX && seen.trail == 0) found = candidate;
	}
	close(memory);
	if (!found) die("the transmit window is not where it was", NULL);
	found->lead = first - 1;
	found->trail = first;
}

static pgm_sock_t *open_socket(int is_sender, const char *address, const char *group, int port, int data_port)
{
	char network[256];
	struct pgm_addrinfo_t *info = NULL;
	pgm_error_t *error = NULL;
	pgm_sock_t *sock = NULL;
	snprintf(network, sizeof network, "%s;%s", address, group);
	if (!pgm_getaddrinfo(network, NULL, &info, &error)) die("pgm_getaddrinfo", error);
	if (!pgm_socket(&sock, info->ai_send_addrs[0].gsr_group.ss_family, SOCK_SEQPACKET, IPPROTO_UDP, &error)) die("pgm_socket", error);
	SET_INT(sock, PGM_UDP_ENCAP_UCAST_PORT, port);
	SET_INT(sock, PGM_UDP_ENCAP_MCAST_PORT, port);
	SET_INT(sock, PGM_MTU, setting("mtu"));
	const int buffer = BUFFER;
	pgm_setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
	is_sender ? set_up_sender(sock) : set_up_receiver(sock);
	struct pgm_sockaddr_t name;
	memset(&name, 0, sizeof name);
	name.sa_port = data_port;
	if (!pgm_gsi_create_from_hostname(&name.sa_addr.gsi, &error)) die("pgm_gsi_create_from_hostname", error);
	const uint32_t number = (uint32_t)getpid() * 2654435761u; /* a session of its own for every process of a host */
	memcpy(name.sa_addr.gsi.identifier, &number, sizeof number);
	struct pgm_interface_req_t interface;
	memset(&interface, 0, sizeof interface);
	interface.ir_interface = info->ai_recv_addrs[0].gsr_interface;
	interface.ir_address.ss_family = AF_INET;
	((struct sockaddr_in *)&interface.ir_address)->sin_addr.s_addr = inet_addr(address);
	if (!pgm_bind3(sock, &name, sizeof name, &interface, sizeof interface, &interface, sizeof interface, &error)) die("pgm_bind3", error);
	if (is_sender && setting("first")) begin_at(sock, (uint32_t)setting("first"));
	for (unsigned i = 0; i < info->ai_recv_addrs_len; i++)
		set(sock, PGM_JOIN_GROUP, &info->ai_recv_addrs[i], sizeof(struct pgm_group_source_req), "PGM_JOIN_GROUP");
	set(sock, PGM_SEND_GROUP, &info->ai_send_addrs[0], sizeof(struct pgm_group_source_req), "PGM_SEND_GROUP");
	pgm_freeaddrinfo(info);
	SET_INT(sock, PGM_MULTICAST_LOOP, 0);
	SET_INT(sock, PGM_MULTICAST_HOPS, 16);
	SET_INT(sock, PGM_NOBLOCK, 1);
	if (!pgm_connect(sock, &error)) die("pgm_connect", error);
	return sock;
}

/* Wait for the library's sockets and timers, and for standard input if wanted. */
static void wait_for(pgm_sock_t *sock, int with_input, int most_ms)
{
	struct pollfd fds[8] = { { .fd = 0, .events = POLLIN } };
	int count = 7;
	pgm_poll_info(sock, fds + 1, &count, POLLIN);
	if (with_input) poll(fds, count + 1, most_ms);
	else poll(fds + 1, count, most_ms);
}

static void serve(pgm_sock_t *sock)
{
	static char buffer[MAX_MESSAGE];
	pgm_error_t *error = NULL;
	size_t octets;
	pgm_recv(sock, buffer, sizeof buffer, MSG_DONTWAIT, &octets, &error);
	if (error) pgm_error_free(error);
}

static void send_message(pgm_sock_t *sock, const char *message, size_t size)
{
	size_t sent;
	for (;;) {
		const int status = pgm_send(sock, message, size, &sent);
		for (long i = 0; i < setting("serve"); i++) serve(sock);
		if (status == PGM_IO_STATUS_NORMAL) return;
		if (status == PGM_IO_STATUS_ERROR) die("pgm_send", NULL);
		if (is_stopped) return;
		wait_for(sock, 0, 1);
	}
}

static void run_sender(pgm_sock_t *sock)
{
	static char input[INPUT_SIZE];
	size_t held = 0;
	long messages = 0;
	int is_open = 1;
	fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
	while (!is_stopped) {
		const ssize_t more = is_open ? read(0, input + held, sizeof input - held) : -1;
		if (more == 0) {
			is_open = 0;
			fprintf(stderr, "sent %ld\n", messages);
		}
		if (more > 0) held += more;
		char *at = input, *end;
		while (!is_stopped && (end = memchr(at, '\n', input + held - at))) {
			send_message(sock, at, end - at);
			messages++;
			at = end + 1;
		}
		held -= at - input;
		memmove(input, at, held);
		serve(sock);
		if (more <= 0) wait_for(sock, is_open, 5);
	}
	fprintf(stderr, "end %ld\n", messages);
}

static void report(const char *what, const pgm_tsi_t *tsi)
{
	char text[PGM_TSISTRLEN];
	pgm_tsi_print_r(tsi, text, sizeof text);
	fflush(stdout);
	fprintf(stderr, "%s %s\n", what, text);
}

static void run_receiver(pgm_sock_t *sock)
{
	static char buffer[MAX_MESSAGE];
	pgm_tsi_t last;
	long messages = 0;
	memset(&last, 0, sizeof last);
	while (!is_stopped) {
		size_t octets = 0;
		pgm_error_t *error = NULL;
		struct pgm_sockaddr_t from;
		socklen_t from_size = sizeof from;
		memset(&from, 0, sizeof from);
		const int status = pgm_recvfrom(sock, buffer, sizeof buffer, 0, &octets, &from, &from_size, &error);
		if (status == PGM_IO_STATUS_NORMAL) {
			if (memcmp(&last, &from.sa_addr, sizeof last)) report("open", &from.sa_addr);
			last = from.sa_addr;
			fwrite(buffer, 1, octets, stdout);
			putchar('\n');
			messages++;
			continue;
		}
		if (status == PGM_IO_STATUS_RESET) {
			fflush(stdout);
			fprintf(stderr, "reset after %ld: %s\n", messages, error && error->message ? error->message : "");
		}
		if (error) pgm_error_free(error);
		fflush(stdout);
		struct timeval remaining = { 0, 20000 };
		socklen_t size = sizeof remaining;
		if (status == PGM_IO_STATUS_TIMER_PENDING) pgm_getsockopt(sock, IPPROTO_PGM, PGM_TIME_REMAIN, &remaining, &size);
		const long wait_ms = remaining.tv_sec * 1000 + (remaining.tv_usec + 999) / 1000;
		wait_for(sock, 0, wait_ms > 20 ? 20 : wait_ms);
	}
	fflush(stdout);
	fprintf(stderr, "end %ld\n", messages);
}

int main(int argc, char **argv)
{
	pgm_error_t *error = NULL;
	if (argc == 2 && !strcmp(argv[1], "version")) {
		printf("%u.%u.%u\n", pgm_major_version, pgm_minor_version, pgm_micro_version);
		return 0;
	}
	if (argc < 6) {
		fprintf(stderr, "usage: see the head of the source\n");
		return 2;
	}
	for (int i = 6; i < argc; i++) take_setting(argv[i]);
	const int is_sender = !strcmp(argv[1], "send");
	setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
	struct sigaction action = { .sa_handler = stop };
	sigaction(SIGTERM, &action, NULL);
	if (!pgm_init(&error)) die("pgm_init", error);
	pgm_sock_t *sock = open_socket(is_sender, argv[2], argv[3], atoi(argv[4]), atoi(argv[5]));
	fprintf(stderr, "ready\n");
	is_sender ? run_sender(sock) : run_receiver(sock);
	pgm_close(sock, TRUE);
	return 0;
}
