/* Threads that wait for one lock in two places, for known parts of the time, through the C library.
 *
 *     known-locks ROUNDS A B      ROUNDS x (A + B) milliseconds of waits
 *     known-locks turns ROUNDS    waits in turns, both places equally often, as short as they are
 *
 * Built without frame pointers: only the tables for unwinding lead from the library to the places.
 * Says when it is there, begins when a line comes on stdin, then says the ns spent in each place. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KNOWN __attribute__((noinline, noclone))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t asked, held, begin;
static long hold_ns, spent_ns[2];

static long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Takes the lock, says so, and keeps it for a while. */
static void *holder(void *unused) {
    for (;;) {
        sem_wait(&asked);
        pthread_mutex_lock(&lock);
        sem_post(&held);
        struct timespec time = {0, hold_ns};
        nanosleep(&time, NULL);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static long wait_for_lock(void) {
    long began = now_ns();
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return now_ns() - began;
}

#define PLACE(name, index)                                                     \
    KNOWN void name(long ns) {                                                 \
        hold_ns = ns;                                                          \
        sem_post(&asked);                                                      \
        while (sem_wait(&held)) {}                                             \
        spent_ns[index] += wait_for_lock();                                    \
        __asm__ volatile("");                                                  \
    }
PLACE(first_place, 0)
PLACE(second_place, 1)

KNOWN void *waiter(void *words) {
    char **asked_for = words;
    sem_wait(&begin);
    int turns = !strcmp(asked_for[1], "turns");
    int rounds = atoi(asked_for[turns ? 2 : 1]);
    long each[] = {turns ? 1000 : atol(asked_for[2]) * 1000000, turns ? 1000 : atol(asked_for[3]) * 1000000};
    for (int n = 0; n < rounds; n++) {
        first_place(each[0]);
        second_place(each[1]);
    }
    printf("%ld %ld\n", spent_ns[0], spent_ns[1]);
    fflush(stdout);
    pause();
    return words;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    pthread_t threads[2];
    sem_init(&asked, 0, 0);
    sem_init(&held, 0, 0);
    sem_init(&begin, 0, 0);
    pthread_create(&threads[0], NULL, holder, NULL);
    pthread_create(&threads[1], NULL, waiter, words);
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) return 1;
    sem_post(&begin);
    while (getchar() != EOF) {}
    return 0;
}
