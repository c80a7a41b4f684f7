/* GCC's OpenMP on POSIX threads, as much of it as kernels.c takes: so ThreadSanitizer, which knows
 * nothing of what libgomp does inside, sees each start, barrier and end of a team.
 */
#include <pthread.h>

#define MOST_THREADS 8

typedef struct {
    void (*work)(void *);
    void *data;
    int size;
    pthread_barrier_t barrier;
} Team;

typedef struct {
    Team *team;
    int number;
} Member;

static __thread Member member;

static void *take_part(void *given)
{
    member = *(Member *)given;
    member.team->work(member.team->data);
    member = (Member){0};
    return 0;
}

void GOMP_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags)
{
    (void)flags;
    Team team = {.work = work, .data = data, .size = threads < MOST_THREADS ? (int)threads : MOST_THREADS};
    pthread_t handles[MOST_THREADS];
    Member members[MOST_THREADS];
    pthread_barrier_init(&team.barrier, 0, team.size);
    for (int number = 0; number < team.size; number++) members[number] = (Member){&team, number};
    for (int number = 1; number < team.size; number++)
        pthread_create(handles + number, 0, take_part, members + number);
    take_part(members);
    for (int number = 1; number < team.size; number++) pthread_join(handles[number], 0);
    pthread_barrier_destroy(&team.barrier);
}

void GOMP_barrier(void) { pthread_barrier_wait(&member.team->barrier); }

static pthread_mutex_t atomic = PTHREAD_MUTEX_INITIALIZER;
void GOMP_atomic_start(void) { pthread_mutex_lock(&atomic); }
void GOMP_atomic_end(void) { pthread_mutex_unlock(&atomic); }

int omp_get_thread_num(void) { return member.number; }
int omp_get_num_threads(void) { return member.team ? member.team->size : 1; }
