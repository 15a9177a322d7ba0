/* OpenPGM's ends of a path for `pgm bench`.
 *
 *   openpgm send|recv|ping|pong KEY=VALUE ...
 *
 * control.py describes the protocol with the benchmark: words on standard input, JSON objects on standard output. The
 * tables `texts` and `settings` below list the keys.
 *
 * The library's checksum copy uses aligned stores and crashes on other addresses. Messages therefore begin at a multiple
 * of 16 and are not fragmented.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <pgm/pgm.h>

#define MAX_MESSAGE 65536
#define MAX_TRIPS 4000000
#define PROBE UINT64_MAX
#define PROBE_NS 20000000
#define QUIET_NS 1000000000L /* until a request counts as lost */
#define WARM_UP_NS 300000000L
#define LOOK_MESSAGES 256   /* between two checks of standard input while messages arrive */
#define SERVE_MESSAGES 16   /* sent between two checks for NAKs */
#define SERVE_SPINS 1024    /* reads of an empty socket between two checks for NAKs */

static struct { const char *key; const char *value; } texts[] = {
	{ "own", "" }, { "group", "" }, { "back", "" }, /* own address, group, group of the answers */
};

static struct { const char *key; long value; } settings[] = {
	{ "port", 0 },
	{ "mtu", 1496 },     /* octets of an IP packet */
	{ "size", 1400 },
	{ "rate", 0 },       /* messages a second; 0 means no limit */
	{ "ms", 5000 },      /* duration */
	{ "messages", 0 },   /* number, instead of a duration */
	{ "quiet_ms", 1000 }, /* silence after which a receiver reports its result */
	{ "window", 60000 }, /* sqns, at both ends */
	{ "rcvbuf", 0 }, { "sndbuf", 0 },
	{ "loop", 0 },       /* both ends on one host */
	{ "spin", 0 },       /* busy-poll, never wait in the kernel */
	{ "backoff", 2 },    /* ms */
	{ "repeat", 10 },    /* ms until an unconfirmed NAK is repeated */
	{ "rdata", 10 },     /* ms until a confirmed NAK is repeated */
	{ "retries", 50 },   /* of both kinds */
};

static long setting(const char *key)
{
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (!strcmp(settings[i].key, key)) return settings[i].value;
	abort();
}

static const char *text(const char *key)
{
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!strcmp(texts[i].key, key)) return texts[i].value;
	abort();
}

static void take_word(const char *word)
{
	const char *equals = strchr(word, '=');
	const size_t length = equals ? (size_t)(equals - word) : 0;
	for (size_t i = 0; length && i < sizeof settings / sizeof *settings; i++)
		if (strlen(settings[i].key) == length && !memcmp(settings[i].key, word, length)) {
			settings[i].value = atol(equals + 1);
			return;
		}
	for (size_t i = 0; length && i < sizeof texts / sizeof *texts; i++)
		if (strlen(texts[i].key) == length && !memcmp(texts[i].key, word, length)) {
			texts[i].value = equals + 1;
			return;
		}
	fprintf(stderr, "no such setting: %s\n", word);
	exit(2);
}

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Return the next word of standard input, or "" if there is none. At the end of standard input, `is_over` becomes true. */
static int is_over;

static const char *word(void)
{
	static char line[256];
	static char held[1024];
	static size_t size;
	char *end = memchr(held, '\n', size);
	if (!end) {
		const ssize_t more = read(0, held + size, sizeof held - size);
		if (more == 0) is_over = 1;
		if (more > 0) size += more;
		end = memchr(held, '\n', size);
	}
	if (!end) return "";
	const size_t length = end - held;
	memcpy(line, held, length < sizeof line ? length : sizeof line - 1);
	line[length < sizeof line ? length : sizeof line - 1] = 0;
	size -= length + 1;
	memmove(held, end + 1, size);
	return line;
}

static void say(const char *json)
{
	puts(json);
	fflush(stdout);
}

static void die(const char *what, pgm_error_t *error)
{
	fprintf(stderr, "%s: %s\n", what, error && error->message ? error->message : "failed");
	exit(1);
}

static void set(pgm_sock_t *sock, int level, int option, const void *value, socklen_t size, const char *name)
{
	if (!pgm_setsockopt(sock, level, option, value, size)) {
		fprintf(stderr, "option %s refused\n", name);
		exit(1);
	}
}
#define SET_INT(sock, option, number) do { const int value_ = (number); set(sock, IPPROTO_PGM, option, &value_, sizeof value_, #option); } while (0)

static void set_up_sender(pgm_sock_t *sock)
{
	static const int spread[] = { 1, 1, 1, 1, 3, 7, 15, 30 };
	int heartbeats[sizeof spread / sizeof *spread];
	for (size_t i = 0; i < sizeof spread / sizeof *spread; i++) heartbeats[i] = pgm_msecs(spread[i] * 100);
	SET_INT(sock, PGM_SEND_ONLY, 1);
	SET_INT(sock, PGM_AMBIENT_SPM, pgm_msecs(500));
	set(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, heartbeats, sizeof heartbeats, "PGM_HEARTBEAT_SPM");
	SET_INT(sock, PGM_TXW_SQNS, setting("window"));
}

static void set_up_receiver(pgm_sock_t *sock)
{
	SET_INT(sock, PGM_RECV_ONLY, 1);
	SET_INT(sock, PGM_RXW_SQNS, setting("window"));
	SET_INT(sock, PGM_PEER_EXPIRY, pgm_secs(300));
	SET_INT(sock, PGM_SPMR_EXPIRY, pgm_msecs(250));
	SET_INT(sock, PGM_NAK_BO_IVL, pgm_msecs(setting("backoff")));
	SET_INT(sock, PGM_NAK_RPT_IVL, pgm_msecs(setting("repeat")));
	SET_INT(sock, PGM_NAK_RDATA_IVL, pgm_msecs(setting("rdata")));
	SET_INT(sock, PGM_NAK_DATA_RETRIES, setting("retries"));
	SET_INT(sock, PGM_NAK_NCF_RETRIES, setting("retries"));
}

static pgm_sock_t *open_socket(int is_sender, const char *group, int port)
{
	char network[256];
	struct pgm_addrinfo_t *info = NULL;
	pgm_error_t *error = NULL;
	pgm_sock_t *sock = NULL;
	snprintf(network, sizeof network, "%s;%s", text("own"), group);
	if (!pgm_getaddrinfo(network, NULL, &info, &error)) die("pgm_getaddrinfo", error);
	if (!pgm_socket(&sock, AF_INET, SOCK_SEQPACKET, IPPROTO_UDP, &error)) die("pgm_socket", error);
	SET_INT(sock, PGM_UDP_ENCAP_UCAST_PORT, port);
	SET_INT(sock, PGM_UDP_ENCAP_MCAST_PORT, port);
	SET_INT(sock, PGM_MTU, setting("mtu"));
	const int rcvbuf = setting("rcvbuf"), sndbuf = setting("sndbuf");
	if (rcvbuf) set(sock, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf, "SO_RCVBUF");
	if (sndbuf) set(sock, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf, "SO_SNDBUF");
	is_sender ? set_up_sender(sock) : set_up_receiver(sock);
	struct pgm_sockaddr_t name;
	memset(&name, 0, sizeof name);
	name.sa_port = 7500;
	const uint32_t number = (uint32_t)getpid() * 2654435761u + is_sender; /* every socket has its own session */
	memcpy(name.sa_addr.gsi.identifier, &number, sizeof number);
	struct pgm_interface_req_t interface;
	memset(&interface, 0, sizeof interface);
	interface.ir_interface = info->ai_recv_addrs[0].gsr_interface;
	interface.ir_address.ss_family = AF_INET;
	((struct sockaddr_in *)&interface.ir_address)->sin_addr.s_addr = inet_addr(text("own"));
	if (!pgm_bind3(sock, &name, sizeof name, &interface, sizeof interface, &interface, sizeof interface, &error)) die("pgm_bind3", error);
	for (unsigned i = 0; i < info->ai_recv_addrs_len; i++)
		set(sock, IPPROTO_PGM, PGM_JOIN_GROUP, &info->ai_recv_addrs[i], sizeof(struct pgm_group_source_req), "PGM_JOIN_GROUP");
	set(sock, IPPROTO_PGM, PGM_SEND_GROUP, &info->ai_send_addrs[0], sizeof(struct pgm_group_source_req), "PGM_SEND_GROUP");
	pgm_freeaddrinfo(info);
	SET_INT(sock, PGM_MULTICAST_LOOP, setting("loop"));
	SET_INT(sock, PGM_MULTICAST_HOPS, 1);
	SET_INT(sock, PGM_NOBLOCK, 1);
	if (!pgm_connect(sock, &error)) die("pgm_connect", error);
	return sock;
}

static void wait_for(pgm_sock_t *sock, int most_ms)
{
	struct pollfd fds[8] = { { .fd = 0, .events = POLLIN } };
	int count = 7;
	pgm_poll_info(sock, fds + 1, &count, POLLIN);
	poll(fds, count + 1, most_ms);
}

/* Receive a message; return its octets, or -1 without one. Losses that the library reports are counted. */
static long resets;

static ssize_t take(pgm_sock_t *sock, char *buffer, int *status)
{
	pgm_error_t *error = NULL;
	size_t octets = 0;
	*status = pgm_recv(sock, buffer, MAX_MESSAGE, MSG_DONTWAIT, &octets, &error);
	if (*status == PGM_IO_STATUS_RESET) resets++;
	if (error) pgm_error_free(error);
	return *status == PGM_IO_STATUS_NORMAL ? (ssize_t)octets : -1;
}

static void pause_for(pgm_sock_t *sock, int status, int most_ms)
{
	struct timeval remaining = { 0, 20000 };
	socklen_t size = sizeof remaining;
	if (status == PGM_IO_STATUS_TIMER_PENDING) pgm_getsockopt(sock, IPPROTO_PGM, PGM_TIME_REMAIN, &remaining, &size);
	const long wait_ms = remaining.tv_sec * 1000 + (remaining.tv_usec + 999) / 1000;
	wait_for(sock, wait_ms > most_ms ? most_ms : (int)wait_ms);
}

static void serve(pgm_sock_t *sock)
{
	static char buffer[MAX_MESSAGE];
	int status;
	take(sock, buffer, &status);
}

static char *message(void)
{
	static char at[MAX_MESSAGE] __attribute__((aligned(16)));
	for (long i = 0; i < setting("size"); i++) at[i] = (char)(i * 31);
	return at;
}

static void number(char *at, uint64_t value)
{
	for (int i = 7; i >= 0; i--, value >>= 8) at[i] = (char)value;
}

static uint64_t number_of(const char *at)
{
	uint64_t value = 0;
	for (int i = 0; i < 8; i++) value = value << 8 | (unsigned char)at[i];
	return value;
}

static void put(pgm_sock_t *sock, const char *octets)
{
	size_t sent;
	for (;;) {
		const int status = pgm_send(sock, octets, setting("size"), &sent);
		if (status == PGM_IO_STATUS_NORMAL) return;
		if (status == PGM_IO_STATUS_ERROR) die("pgm_send", NULL);
		serve(sock);
	}
}

static void run_send(void)
{
	pgm_sock_t *sock = open_socket(1, text("group"), setting("port"));
	char line[128], *octets = message();
	say("{\"event\":\"ready\"}");
	for (int64_t probe_at = 0; strcmp(word(), "go"); wait_for(sock, 5)) {
		if (is_over) return;
		serve(sock);
		if (now_ns() < probe_at) continue;
		probe_at = now_ns() + PROBE_NS;
		number(octets, PROBE);
		put(sock, octets);
	}
	const int64_t begun = now_ns(), until = begun + setting("ms") * 1000000;
	const double ns_each = setting("rate") ? 1e9 / setting("rate") : 0;
	double due = begun;
	uint64_t count = 0;
	while (setting("messages") ? count < (uint64_t)setting("messages") : now_ns() < until) {
		int64_t now = now_ns();
		while (now < due) now = now_ns();
		if (due < now - 2000000) due = now - 2000000; /* lost time is not caught up */
		due += ns_each;
		number(octets, count++);
		put(sock, octets);
		if (count % SERVE_MESSAGES == 0) serve(sock);
	}
	snprintf(line, sizeof line, "{\"event\":\"sent\",\"messages\":%llu,\"seconds\":%.6f}",
		(unsigned long long)count, (now_ns() - begun) / 1e9);
	say(line);
	while (!is_over) {
		serve(sock);
		word();
		wait_for(sock, 2);
	}
}

static void run_recv(void)
{
	static char buffer[MAX_MESSAGE];
	pgm_sock_t *sock = open_socket(0, text("group"), setting("port"));
	char line[256];
	int64_t first = 0, last = 0, quiet_since = 0;
	uint64_t count = 0, next = 0, missing = 0, disordered = 0, expected = UINT64_MAX, reads = 0;
	int hears = 0;
	say("{\"event\":\"ready\"}");
	while (!is_over && count < expected) {
		int status;
		const ssize_t octets = take(sock, buffer, &status);
		if (octets >= 8) {
			const uint64_t value = number_of(buffer);
			if (!hears) {
				hears = 1;
				say("{\"event\":\"hears\"}");
			}
			if (value != PROBE) {
				if (!count) first = now_ns();
				if (value > next) missing += value - next;
				if (value < next) disordered++;
				next = value + 1;
				count++;
				if (count % 16 == 0) last = now_ns();
			}
			quiet_since = 0;
			if (++reads % LOOK_MESSAGES) continue;
		} else if (!quiet_since) {
			quiet_since = now_ns();
			if (count % 16) last = quiet_since;
		}
		const char *said = word();
		if (!strncmp(said, "expect ", 7)) {
			expected = strtoull(said + 7, NULL, 10);
			quiet_since = 0;
		}
		if (octets >= 0) continue;
		if (expected != UINT64_MAX && quiet_since && now_ns() - quiet_since > setting("quiet_ms") * 1000000) break;
		if (!setting("spin")) pause_for(sock, status, 20);
	}
	snprintf(line, sizeof line,
		"{\"event\":\"result\",\"messages\":%llu,\"missing\":%llu,\"disordered\":%llu,\"damaged\":0,\"resets\":%ld,\"first_ns\":%lld,\"last_ns\":%lld}",
		(unsigned long long)count, (unsigned long long)missing, (unsigned long long)disordered, resets, (long long)first, (long long)last);
	say(line);
	while (!is_over) {
		word();
		wait_for(sock, 20);
		serve(sock);
	}
}

static int compare(const void *one, const void *other)
{
	const int64_t difference = *(const int64_t *)one - *(const int64_t *)other;
	return difference < 0 ? -1 : difference > 0;
}

/* Wait for a message on `in`, and serve NAKs on `out` meanwhile. Return 0 after most_ns without a message. */
static int await(pgm_sock_t *in, pgm_sock_t *out, char *buffer, int64_t most_ns)
{
	const int64_t until = now_ns() + most_ns;
	for (long spins = 1;; spins++) {
		int status;
		if (take(in, buffer, &status) >= 0) return 1;
		if (setting("spin")) {
			if (spins % SERVE_SPINS) continue;
		} else {
			pause_for(in, status, 20);
		}
		serve(out);
		if (now_ns() > until) return 0;
	}
}

static void run_ping(void)
{
	static char buffer[MAX_MESSAGE];
	pgm_sock_t *out = open_socket(1, text("group"), setting("port"));
	pgm_sock_t *in = open_socket(0, text("back"), setting("port") + 1);
	int64_t *times = calloc(MAX_TRIPS, sizeof *times);
	char line[256], *octets = message();
	long count = 0, lost = 0;
	double sum = 0;
	say("{\"event\":\"ready\"}");
	while (strcmp(word(), "go") && !is_over) wait_for(in, 20);
	const int64_t from = now_ns() + WARM_UP_NS, until = from + setting("ms") * 1000000;
	while (now_ns() < until && count < MAX_TRIPS) {
		const int64_t begun = now_ns();
		put(out, octets);
		const int came = await(in, out, buffer, QUIET_NS);
		if (begun < from) continue;
		if (!came) lost++;
		else times[count++] = now_ns() - begun;
	}
	for (long i = 0; i < count; i++) sum += times[i];
	qsort(times, count, sizeof *times, compare);
#define AT(share) (times[(long)((share) * (count - 1))] / 1000.0)
	snprintf(line, sizeof line,
		"{\"event\":\"result\",\"trips\":%ld,\"lost_trips\":%ld,\"mean_us\":%.2f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"p999_us\":%.2f,\"min_us\":%.2f,\"max_us\":%.2f}",
		count, lost, count ? sum / count / 1000 : 0.0, AT(0.5 * !!count), AT(0.99 * !!count), AT(0.999 * !!count), AT(0.0), AT(1.0 * !!count));
	say(line);
	while (!is_over) {
		word();
		serve(out);
		wait_for(in, 20);
	}
}

static void run_pong(void)
{
	static char buffer[MAX_MESSAGE];
	pgm_sock_t *out = open_socket(1, text("back"), setting("port") + 1);
	pgm_sock_t *in = open_socket(0, text("group"), setting("port"));
	char *octets = message();
	say("{\"event\":\"ready\"}");
	while (!is_over) {
		if (await(in, out, buffer, 20000000)) put(out, octets);
		else word();
	}
}

int main(int argc, char **argv)
{
	pgm_error_t *error = NULL;
	if (argc < 2) return 2;
	for (int i = 2; i < argc; i++) take_word(argv[i]);
	fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
	if (!pgm_init(&error)) die("pgm_init", error);
	if (!strcmp(argv[1], "send")) run_send();
	else if (!strcmp(argv[1], "recv")) run_recv();
	else if (!strcmp(argv[1], "ping")) run_ping();
	else if (!strcmp(argv[1], "pong")) run_pong();
	else return 2;
	return 0;
}
