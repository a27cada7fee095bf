// A clock that is wrong by as much as a file says, for a program started with this
// as LD_PRELOAD. REDISTEST_CLOCK names the file: eight bytes, the nanoseconds to
// add, of this machine's byte order. It is mapped, so that a change is seen at once.
// Only the time of day is moved; monotonic clocks go on as they do for others.
//
// The real time is asked of the kernel itself: finding libc's own functions takes
// memory, and a program may ask for the time before its allocator is ready.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static volatile const int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
  const char *name = getenv("REDISTEST_CLOCK");
  int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *at = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED) offset = at;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  int err = (int)syscall(SYS_clock_gettime, id, ts);
  if (err == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    int64_t ns = ts->tv_sec * SECOND + ts->tv_nsec + *offset;
    ts->tv_sec = ns / SECOND;
    ts->tv_nsec = ns % SECOND;
  }
  return err;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  struct timespec ts;
  int err = clock_gettime(CLOCK_REALTIME, &ts);
  (void)zone;
  if (err == 0 && tv) {
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
  }
  return err;
}

time_t time(time_t *at) {
  struct timespec ts;
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
  if (at) *at = ts.tv_sec;
  return ts.tv_sec;
}
