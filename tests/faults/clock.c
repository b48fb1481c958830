/* Stands before the C library: the time of day of a process is off by what a file says, in seconds.

   Clocks that only measure how long something takes are left as they are, as where somebody sets a machine's clock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const volatile long long *seconds;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("CLOCK_AHEAD");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (file < 0)
		return;
	void *shared = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
	if (shared != MAP_FAILED)
		seconds = shared;
}

static long long ahead(void)
{
	return seconds ? *seconds : 0;
}

int clock_gettime(clockid_t clock, struct timespec *found)
{
	static int (*usual)(clockid_t, struct timespec *);

	if (!usual)
		usual = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int failed = usual(clock, found);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		found->tv_sec += ahead();
	return failed;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone)
{
	struct timespec exact;

	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &exact))
		return -1;
	found->tv_sec = exact.tv_sec;
	found->tv_usec = exact.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *found)
{
	struct timespec exact;

	clock_gettime(CLOCK_REALTIME_COARSE, &exact);
	if (found)
		*found = exact.tv_sec;
	return exact.tv_sec;
}
