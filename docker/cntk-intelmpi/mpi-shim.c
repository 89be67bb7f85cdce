/* Open MPI 1.10's binary interface, as far as CNTK calls it, on an MPI of MPICH's: Intel MPI.
 *
 * CNTK's wheel is linked with Open MPI. There a handle is a pointer, in MPICH an int; some constants and MPI_Status
 * differ too. CNTK calls the 22 functions below with the predefined handles below. build-shim.sh makes a stub for each
 * other name that the loader looks for; a stub that is called names itself and ends the program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What CNTK has: pointers. Those of Open MPI's own objects are their addresses. */
typedef void *handle;
char ompi_mpi_comm_world[512], ompi_mpi_comm_null[512], ompi_mpi_op_sum[512];
char ompi_mpi_char[512], ompi_mpi_int[512], ompi_mpi_long_long_int[512], ompi_mpi_float[512], ompi_mpi_double[512];

static const struct { handle theirs; int ours; } PREDEFINED[] = {
    {ompi_mpi_comm_world, 0x44000000}, {ompi_mpi_comm_null, 0x04000000}, {ompi_mpi_op_sum, 0x58000003},
    {ompi_mpi_char, 0x4c000101}, {ompi_mpi_int, 0x4c000405}, {ompi_mpi_long_long_int, 0x4c000809},
    {ompi_mpi_float, 0x4c00040a}, {ompi_mpi_double, 0x4c00080b},
};

struct theirs { int source, tag, error, cancelled; size_t bytes; };
struct ours { int low, high, source, tag, error; };

static void die(const char *what, const char *why) {
    fprintf(stderr, "CNTK on Intel MPI: %s: %s\n", what, why);
    exit(1);
}

void cntk_shim_missing(const char *name) { die(name, "this function is not in docker/cntk-intelmpi/mpi-shim.c"); }

/* RTLD_DEEPBIND: Intel MPI calls its own MPI_ functions, not those of this file. */
static void *of_intel(const char *name) {
    static void *library;
    if (!library) {
        const char *root = getenv("I_MPI_ROOT");
        char path[4096];
        if (!root) die("I_MPI_ROOT", "not set; source mpivars.sh");
        snprintf(path, sizeof path, "%s/lib/libmpi.so.12", root);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (!library) die(path, dlerror());
    }
    void *found = dlsym(library, name);
    if (!found) die(name, dlerror());
    return found;
}

#define INTEL(name) static int (*real)(); if (!real) real = of_intel(#name)

static int in(handle given) {
    for (size_t i = 0; i < sizeof PREDEFINED / sizeof *PREDEFINED; i++)
        if (PREDEFINED[i].theirs == given) return PREDEFINED[i].ours;
    return (int)(intptr_t)given; /* a request that this file handed out */
}
static handle out(int given) { return (handle)(intptr_t)given; }
static const void *place(const void *buffer) { return buffer == (void *)1 ? (void *)-1 : buffer; } /* MPI_IN_PLACE */
static int from(int source) { return source == -1 ? -2 : source == -2 ? -1 : source; } /* ANY_SOURCE, PROC_NULL */
static void status_out(struct theirs *given, const struct ours *found) {
    if (!given) return; /* MPI_STATUS_IGNORE */
    memset(given, 0, sizeof *given);
    given->source = found->source, given->tag = found->tag, given->error = found->error;
    given->cancelled = found->high & 1;
    given->bytes = ((size_t)(unsigned)(found->high >> 1) << 32) | (unsigned)found->low;
}

int MPI_Init_thread(int *argc, char ***argv, int needed, int *got) { INTEL(MPI_Init_thread); return real(argc, argv, needed, got); }
int MPI_Initialized(int *flag) { INTEL(MPI_Initialized); return real(flag); }
int MPI_Finalize(void) { INTEL(MPI_Finalize); return real(); }
int MPI_Abort(handle c, int code) { INTEL(MPI_Abort); return real(in(c), code); }
int MPI_Comm_rank(handle c, int *rank) { INTEL(MPI_Comm_rank); return real(in(c), rank); }
int MPI_Comm_size(handle c, int *size) { INTEL(MPI_Comm_size); return real(in(c), size); }
int MPI_Barrier(handle c) { INTEL(MPI_Barrier); return real(in(c)); }

/* Open MPI's buffers have 256 characters; MPICH's 128 for a name, 1024 for an error. */
int MPI_Get_processor_name(char *name, int *length) { INTEL(MPI_Get_processor_name); return real(name, length); }
int MPI_Error_string(int code, char *text, int *length) {
    INTEL(MPI_Error_string);
    char whole[1024] = "";
    int result = real(code, whole, length);
    snprintf(text, 256, "%s", whole);
    *length = (int)strlen(text);
    return result;
}

int MPI_Bcast(void *buffer, int n, handle type, int root, handle c) { INTEL(MPI_Bcast); return real(buffer, n, in(type), root, in(c)); }
int MPI_Allreduce(const void *a, void *b, int n, handle type, handle op, handle c) {
    INTEL(MPI_Allreduce);
    return real(place(a), b, n, in(type), in(op), in(c));
}
int MPI_Iallreduce(const void *a, void *b, int n, handle type, handle op, handle c, handle *request) {
    INTEL(MPI_Iallreduce);
    int made, result = real(place(a), b, n, in(type), in(op), in(c), &made);
    *request = out(made);
    return result;
}
int MPI_Allgather(const void *a, int n, handle type, void *b, int m, handle other, handle c) {
    INTEL(MPI_Allgather);
    return real(place(a), n, in(type), b, m, in(other), in(c));
}
int MPI_Iallgather(const void *a, int n, handle type, void *b, int m, handle other, handle c, handle *request) {
    INTEL(MPI_Iallgather);
    int made, result = real(place(a), n, in(type), b, m, in(other), in(c), &made);
    *request = out(made);
    return result;
}
int MPI_Gather(const void *a, int n, handle type, void *b, int m, handle other, int root, handle c) {
    INTEL(MPI_Gather);
    return real(place(a), n, in(type), b, m, in(other), root, in(c));
}
int MPI_Gatherv(const void *a, int n, handle type, void *b, const int *m, const int *at, handle other, int root, handle c) {
    INTEL(MPI_Gatherv);
    return real(place(a), n, in(type), b, m, at, in(other), root, in(c));
}

int MPI_Isend(const void *buffer, int n, handle type, int to, int tag, handle c, handle *request) {
    INTEL(MPI_Isend);
    int made, result = real(buffer, n, in(type), from(to), tag, in(c), &made);
    *request = out(made);
    return result;
}
int MPI_Irecv(void *buffer, int n, handle type, int source, int tag, handle c, handle *request) {
    INTEL(MPI_Irecv);
    int made, result = real(buffer, n, in(type), from(source), tag, in(c), &made);
    *request = out(made);
    return result;
}
int MPI_Recv(void *buffer, int n, handle type, int source, int tag, handle c, struct theirs *status) {
    INTEL(MPI_Recv);
    struct ours found = {0};
    int result = real(buffer, n, in(type), from(source), tag, in(c), &found);
    status_out(status, &found);
    return result;
}
int MPI_Wait(handle *request, struct theirs *status) {
    INTEL(MPI_Wait);
    struct ours found = {0};
    int own = in(*request), result = real(&own, &found);
    *request = out(own);
    status_out(status, &found);
    return result;
}

static int *requests_in(int n, handle *requests) {
    int *own = malloc(sizeof *own * (size_t)(n + 1));
    if (!own) die("malloc", "no memory");
    for (int i = 0; i < n; i++) own[i] = in(requests[i]);
    return own;
}
static void requests_out(int n, handle *requests, int *own) {
    for (int i = 0; i < n; i++) requests[i] = out(own[i]);
    free(own);
}
int MPI_Waitall(int n, handle *requests, struct theirs *statuses) {
    INTEL(MPI_Waitall);
    struct ours *found = calloc((size_t)n + 1, sizeof *found);
    int *own = requests_in(n, requests), result = real(n, own, found);
    requests_out(n, requests, own);
    for (int i = 0; statuses && i < n; i++) status_out(&statuses[i], &found[i]);
    free(found);
    return result;
}
int MPI_Waitany(int n, handle *requests, int *index, struct theirs *status) {
    INTEL(MPI_Waitany);
    struct ours found = {0};
    int *own = requests_in(n, requests), result = real(n, own, index, &found);
    requests_out(n, requests, own);
    status_out(status, &found);
    return result;
}
