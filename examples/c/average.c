/* SPDX-License-Identifier: Apache-2.0 */
/* Averages a vector over all ranks, from C.
 *
 *   ./c_average                                                     two ranks as threads of this process
 *   RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29600 ./c_average     one rank of many, over UCX
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tithe/tithe.h"

enum { kValues = 10000, kRounds = 20 };

static int fail(const char* where, const tithe_error* error) {
  fprintf(stderr, "%s: %s\n", where, error->what);
  return 1;
}

/* Every rank holds rank + 1 everywhere. A tenth of the values travels per round; the rest is kept, and follows. */
static int run(tithe_transport* transport) {
  tithe_error error;
  tithe_options options;
  tithe_session* session = NULL;
  tithe_options_init(&options);
  options.codec = "topk:ratio=0.1";
  options.strategy = "gather";
  if (tithe_session_open(transport, &options, &session, &error) != TITHE_OK) return fail("open", &error);

  const int rank = tithe_rank(session);
  const int world = tithe_world(session);
  float* gradient = malloc(kValues * sizeof *gradient);
  double sum = 0;
  int failed = 0;
  for (int round = 0; round < kRounds && !failed; ++round) {
    for (int i = 0; i < kValues; ++i) gradient[i] = (float)(rank + 1);
    const tithe_tensor tensor = {"weights", gradient, kValues, TITHE_F32, 0, NULL};
    uint64_t ticket = 0;
    if (tithe_sync(session, &tensor, 1, &ticket, &error) != TITHE_OK) failed = fail("sync", &error);
    if (!failed && tithe_wait(session, ticket, &error) != TITHE_OK) failed = fail("wait", &error);
    if (!failed && tithe_commit(session, &error) != TITHE_OK) failed = fail("commit", &error);
    for (int i = 0; i < kValues; ++i) sum += gradient[i];
  }
  if (!failed && tithe_residual(session, "weights", gradient, kValues, &error) != TITHE_OK)
    failed = fail("residual", &error);
  if (!failed) {
    tithe_stats stats = {.size = sizeof stats};
    double kept = 0;
    for (int i = 0; i < kValues; ++i) kept += gradient[i];
    if (tithe_session_stats(session, &stats, &error) != TITHE_OK) failed = fail("stats", &error);
    printf("rank %d of %d: %d rounds, %.0f received on average, %.0f of its own kept, %llu bytes sent\n",
           rank, world, kRounds, sum, kept, (unsigned long long)stats.bytes_sent);
    if (sum <= 0 || stats.rounds != kRounds) failed = 1;
  }
  free(gradient);
  tithe_session_close(session);
  return failed;
}

static void* run_thread(void* transport) { return run(transport) == 0 ? NULL : transport; }

int main(void) {
  tithe_error error;
  if (getenv("RANK") != NULL) {
    tithe_transport* transport = NULL;
    if (tithe_open_environment(NULL, &transport, &error) != TITHE_OK) return fail("transport", &error);
    return run(transport);
  }
  tithe_transport* both[2];
  if (tithe_open_loop(2, both, &error) != TITHE_OK) return fail("transport", &error);
  pthread_t other;
  void* other_failed = NULL;
  if (pthread_create(&other, NULL, run_thread, both[1]) != 0) return 1;
  const int failed = run(both[0]);
  pthread_join(other, &other_failed);
  return failed != 0 || other_failed != NULL;
}
