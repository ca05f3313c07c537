/* A program whose shares are known. Threads run three functions for 6, 3 and 1 of 10 equal pieces of
 * work, or sleep in three functions for such parts of their time.
 *
 *     known-shares run THREADS ROUNDS A B C      ROUNDS x (A + B + C) x some pieces of work
 *     known-shares wait THREADS ROUNDS A B C     ROUNDS x (A + B + C) milliseconds of sleep
 *
 * Rounds differ in length, or they would keep step with a sampler; all parts of a round by the same.
 * It says when its threads are there, and begins when a line comes on stdin. When it is done, it says
 * the time that it spent in each function by its own clock, for a sleep may end late; its threads
 * stay until stdin ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KNOWN __attribute__((noinline, noclone))

static int waits, rounds, parts[3];
static _Atomic long spent_ns[3];
static pthread_barrier_t begin, done;

/* Some microseconds, and the same for all three. */
static inline __attribute__((always_inline)) void piece(void) {
    long turns = 3000;
    __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(turns));
}

/* By the system call itself: the C library's own function would stand above ours. */
static inline __attribute__((always_inline)) void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    register long four __asm__("r10") = 0;
    long number = SYS_clock_nanosleep;
    __asm__ volatile("syscall" : "+a"(number) : "D"(CLOCK_MONOTONIC), "S"(0), "d"(&time), "r"(four)
                     : "rcx", "r11", "memory");
}

static long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

#define PART(name, index)                                            \
    KNOWN void name(int times) {                                     \
        if (waits) pause_ms(parts[index]);                           \
        else for (int n = parts[index] * times; n > 0; n--) piece(); \
        __asm__ volatile("");                                        \
    }
PART(first_part, 0)
PART(second_part, 1)
PART(third_part, 2)

KNOWN void *work(void *unused) {
    pthread_barrier_wait(&begin);
    unsigned chance = 1;
    for (int n = 0; n < rounds; n++) {
        chance = chance * 1103515245 + 12345;
        int times = 1 + (chance >> 16) % 16;
        long at[] = {now_ns(), 0, 0, 0};
        first_part(times);
        at[1] = now_ns();
        second_part(times);
        at[2] = now_ns();
        third_part(times);
        at[3] = now_ns();
        for (int part = 0; part < 3; part++) spent_ns[part] += at[part + 1] - at[part];
    }
    pthread_barrier_wait(&done);
    pause();
    return unused;
}

int main(int count, char **words) {
    if (count != 7) return 2;
    pthread_t threads[16];
    int running = atoi(words[2]);
    waits = !strcmp(words[1], "wait");
    rounds = atoi(words[3]);
    for (int n = 0; n < 3; n++) parts[n] = atoi(words[4 + n]);
    pthread_barrier_init(&begin, NULL, running + 1);
    pthread_barrier_init(&done, NULL, running + 1);
    for (int n = 0; n < running; n++) pthread_create(&threads[n], NULL, work, NULL);
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) return 1;
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&done);
    printf("%ld %ld %ld\n", spent_ns[0], spent_ns[1], spent_ns[2]);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
