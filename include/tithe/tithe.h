/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TITHE_TITHE_H_
#define TITHE_TITHE_H_
/* The engine for programs that are not C++. The same promises as tithe/session.h, in C99.
 *
 *   codes     every call that can fail returns 0 or a tithe_code, and fills `error` unless it is NULL
 *   owned     the function that is named beside a result frees it; arguments are only borrowed. Exception:
 *             tithe_session_open and tithe_reform take their transport, also when they fail
 *   stable    structs grow at their end only; each has its size as a field
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tithe_code { /* docs/reference/errors.md */
                          TITHE_OK = 0,
                          TITHE_INVALID = 1,
                          TITHE_TOO_SMALL = 2,
                          TITHE_UNSUPPORTED = 3,
                          TITHE_CORRUPT = 4,
                          TITHE_MISMATCH = 5,
                          TITHE_PEER_LOST = 6,
                          TITHE_TIMEOUT = 7,
                          TITHE_IO = 8,
                          TITHE_CANCELLED = 9
} tithe_code;

typedef struct tithe_error {
  int code; /* tithe_code */
  int peer; /* the rank that is to blame, or -1 */
  char what[500];
} tithe_error;

typedef struct tithe_transport tithe_transport;
typedef struct tithe_session tithe_session;

/* ---- Transports: freed by tithe_transport_free, unless a session took them */

/* Ranks as threads of this process; out has room for `world`. */
int tithe_open_loop(int world, tithe_transport** out, tithe_error* error);

/* As MPI_Allgather: stores `bytes` bytes of each rank at `all`, in rank order. Returns 0 for success. */
typedef int (*tithe_all_gather)(void* user, const void* mine, size_t bytes, void* all);
/* Between processes. transport: a name of `tithe transports` with its options, e.g. "ucx:transports=tcp,devices=eth0";
 * NULL: the first transport of this build. Collective. */
int tithe_open_transport(const char* transport, int rank, int world, tithe_all_gather gather, void* user,
                         tithe_transport** out, tithe_error* error);
/* The same with rank, world and rendezvous from the environment variables of torchrun, mpirun or srun. */
int tithe_open_environment(const char* transport, tithe_transport** out, tithe_error* error);
void tithe_transport_free(tithe_transport* transport);

/* ---- Sessions: closed by tithe_session_close */

/* Called once for each ticket. how->code is 0 if the bucket has its result; otherwise `how` is the error that ended the
 * session. The thread belongs to the session or is inside a call of it, and tithe_sync may not have returned the ticket
 * yet. The callback must be short and must not call the session: write to a pipe or an eventfd, or post a semaphore. */
typedef void (*tithe_ended)(void* user, uint64_t ticket, const tithe_error* how);

/* The types of options in tithe/options.def, where each option is documented. */
typedef const char* tithe_option_Text; /* NULL: the default; refused for codec and strategy */
typedef int tithe_option_Flag;         /* 0 or 1 */
typedef size_t tithe_option_Count;
typedef uint64_t tithe_option_Number;
typedef int tithe_option_Integer;
typedef int64_t tithe_option_Milliseconds;
typedef int tithe_option_ThreadCount; /* -1: chosen by tithe */

typedef struct tithe_options {
  size_t size; /* sizeof(tithe_options); tithe_options_init fills it */
#define TITHE_OPTION(kind, name, initial, documentation) tithe_option_##kind name;
#include "tithe/options.def"
#undef TITHE_OPTION
  const char* const* members; /* a permanent name of each rank (docs/guide/elastic.md); NULL: its number */
  tithe_ended ended;          /* NULL: no callback */
  void* user;                 /* passed to `ended`; both outlive the session */
} tithe_options;
void tithe_options_init(tithe_options* options); /* the defaults of tithe/session.h */

int tithe_session_open(tithe_transport* transport, const tithe_options* options, tithe_session** out,
                       tithe_error* error);
void tithe_session_close(tithe_session* session);
int tithe_rank(const tithe_session* session);
int tithe_world(const tithe_session* session);

typedef enum tithe_dtype { TITHE_F32 = 0, TITHE_BF16 = 1, TITHE_F16 = 2 } tithe_dtype;
typedef struct tithe_tensor {
  const char* key; /* the same on all ranks and in every step */
  void* data;      /* n values, replaced by the result; valid and unchanged until tithe_commit */
  size_t n;
  int dtype;  /* tithe_dtype */
  size_t row; /* values per row of a matrix: of all dimensions but the first; n for a vector; 0: unknown */
  const size_t*
      bounds; /* of a reduce-scatter or all-gather: world + 1 offsets, rank r owns [bounds[r], bounds[r + 1]);
                           NULL: equal ranges of whole rows (docs/reference/sharded_rounds.md) */
} tithe_tensor;

/* A key that is part of the open round is refused: call tithe_commit first. */
int tithe_sync(tithe_session* session, const tithe_tensor* bucket, size_t tensors, uint64_t* ticket,
               tithe_error* error);
/* The same for tensors in the memory of GPU `device`, in the CUDA driver's numbering. Their values are valid after the
 * work already queued on `stream`, a cudaStream_t. The result is in the same memory after tithe_wait. */
int tithe_sync_on(tithe_session* session, const tithe_tensor* bucket, size_t tensors, int device,
                  void* stream, uint64_t* ticket, tithe_error* error);
typedef enum tithe_round_kind {
  TITHE_ALL_REDUCE = 0,     /* tithe_sync: every rank gets the mean, or the sum, of all values */
  TITHE_REDUCE_SCATTER = 1, /* every rank gets that of its own range; the other ranges do not change */
  TITHE_ALL_GATHER = 2      /* every rank gets all ranges, each from its owner; nothing is divided */
} tithe_round_kind;
/* The same for a bucket of another kind. device: a GPU, with its stream; -1: the host's memory, stream is NULL. */
int tithe_sync_kind(tithe_session* session, tithe_round_kind kind, const tithe_tensor* bucket, size_t tensors,
                    int device, void* stream, uint64_t* ticket, tithe_error* error);
int tithe_wait(tithe_session* session, uint64_t ticket, tithe_error* error);
/* Returns without waiting. *done is 1 if the bucket has its result, so tithe_wait would not block. With lanes == 0 it
 * does the work that requires no wait. Fails with the error that ended the session. */
int tithe_poll(tithe_session* session, uint64_t ticket, int* done, tithe_error* error);
int tithe_commit(tithe_session* session, tithe_error* error); /* the end of a step: results are final */
/* The inputs of a schedule: between steps, and the same on all ranks. */
int tithe_evaluated(tithe_session* session, double loss, tithe_error* error);
int tithe_learning_rate(tithe_session* session, double rate, tithe_error* error);
void tithe_cancel(tithe_session* session);                  /* from any thread */
int tithe_last_round_dropped(const tithe_session* session); /* 1: a value was not finite */

/* Proposes choices for all ranks from round `round` on; 0: as soon as all are ready. At any time, on rank 0 only. */
int tithe_propose(tithe_session* session, const char* choices, uint64_t round, tithe_error* error);
typedef enum tithe_proposal_state {
  TITHE_PROPOSED_NONE = 0,
  TITHE_PROPOSED_UNDER_WAY = 1,
  TITHE_PROPOSED_AGREED = 2,   /* all ranks switch at *round */
  TITHE_PROPOSED_SWITCHED = 3, /* *round was the first with them */
  TITHE_PROPOSED_REFUSED = 4   /* *why has the rank and the reason */
} tithe_proposal_state;
/* The state of the last proposal: a tithe_proposal_state. round and why may be NULL. */
int tithe_proposal(const tithe_session* session, uint64_t* round, tithe_error* why);

/* Residuals and counters of this rank; after a failure, those of the last commit. tithe_free frees *bytes. */
int tithe_state(tithe_session* session, void** bytes, size_t* count, tithe_error* error);
int tithe_restore(tithe_session* session, const void* bytes, size_t count, tithe_error* error);
/* Continues in a world of other ranks (docs/guide/elastic.md), from states of one round. They include this rank's own
 * state if it took part. book: the residuals of lost ranks are discarded and booked; 0: spread over all ranks. */
int tithe_restore_states(tithe_session* session, const void* const* states, const size_t* counts, size_t n,
                         int book, tithe_error* error);
/* tithe_state without the residuals of this rank, for a new rank. */
int tithe_common_state(tithe_session* session, void** bytes, size_t* count, tithe_error* error);
/* Reverts the last committed round, on all ranks; requires tithe_options.undo. */
int tithe_undo(tithe_session* session, tithe_error* error);
/* Continues the session with other ranks. transport: connects them; the session takes it. members: a name of each. */
int tithe_reform(tithe_session* session, tithe_transport* transport, const char* const* members,
                 uint64_t epoch, tithe_error* error);
int tithe_residual(const tithe_session* session, const char* key, float* out, size_t n, tithe_error* error);
void tithe_free(void* bytes);

typedef struct tithe_stats {
  size_t size; /* set by the caller to sizeof(tithe_stats) */
#define TITHE_STAT(type, name, initial, documentation) type name;
#include "tithe/stats.def" /* documents each */
#undef TITHE_STAT
} tithe_stats;
int tithe_session_stats(const tithe_session* session, tithe_stats* out, tithe_error* error);

#ifdef __cplusplus
}
#endif
#endif
