/* malloc, aligned_alloc, calloc and free with a page behind each array that cannot be touched: reading or writing
 * one number too many ends the process.
 */
#include <sys/mman.h>
#include <unistd.h>

/* In front of each: where its pages begin, and how many bytes they have */
typedef struct {
    char *pages;
    size_t bytes;
} Guarded;

static void *guarded_alloc(size_t alignment, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = sizeof(Guarded) + alignment;
    size_t all = (bytes + before + page - 1) / page * page;
    char *pages = mmap(0, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + all, page, PROT_NONE)) return 0;
    char *start = pages + (all - bytes) / alignment * alignment;
    Guarded found = {pages, all + page};
    memcpy(start - sizeof found, &found, sizeof found);
    return start;
}

static void guarded_free(void *start)
{
    Guarded found;
    if (!start) return;
    memcpy(&found, (char *)start - sizeof found, sizeof found);
    munmap(found.pages, found.bytes);
}

/* As the numbers in the arrays need it, so that arrays of float end where the page does */
#define malloc(bytes) guarded_alloc((bytes) % 8 ? 4 : 8, bytes)
#define calloc(count, size) guarded_alloc(8, (count) * (size)) /* pages are 0 */
#define aligned_alloc(alignment, bytes) guarded_alloc(alignment, bytes)
#define free(start) guarded_free(start)
