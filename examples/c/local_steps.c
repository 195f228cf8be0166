/* SPDX-License-Identifier: Apache-2.0 */
/* Many local steps from C: each of two ranks, threads of this process, moves its parameters by itself for ten steps; then
 * they exchange how far they came, at 2 bits per value, and go on from the mean. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tithe/tithe.h"

enum { kValues = 10000, kExchanges = 40, kSteps = 10 };

typedef struct rank {
  tithe_transport* transport;
  float outer[kValues]; /* what all ranks have alike: the same bits */
  float parameters[kValues], drift[kValues];
  int failed;
} rank;

/* Rank r pulls its parameters towards 1 + r/10: together to 1.05. */
static void* run(void* of) {
  rank* self = of;
  const tithe_tensor bucket = {"parameters", self->drift, kValues, TITHE_F32, 0, NULL};
  tithe_error error = {0};
  tithe_options options;
  tithe_session* session = NULL;
  tithe_options_init(&options);
  options.codec = "eden:bits=2";
  self->failed = tithe_session_open(self->transport, &options, &session, &error) != TITHE_OK;
  for (int exchange = 0; exchange < kExchanges && !self->failed; ++exchange) {
    float* const parameters = memcpy(self->parameters, self->outer, sizeof self->outer);
    const float goal = 1.0F + 0.1F * (float)tithe_rank(session);
    for (int step = 0; step < kSteps; ++step)
      for (int i = 0; i < kValues; ++i) parameters[i] -= 0.05F * (parameters[i] - goal);
    for (int i = 0; i < kValues; ++i) self->drift[i] = self->outer[i] - parameters[i];
    uint64_t ticket = 0;
    self->failed = tithe_sync(session, &bucket, 1, &ticket, &error) != TITHE_OK ||
                   tithe_wait(session, ticket, &error) != TITHE_OK ||
                   tithe_commit(session, &error) != TITHE_OK;
    for (int i = 0; i < kValues && !self->failed; ++i) self->outer[i] -= self->drift[i]; /* by the mean */
  }
  if (self->failed) fprintf(stderr, "%s\n", error.what);
  tithe_session_close(session);
  return NULL;
}

int main(void) {
  static rank ranks[2];
  tithe_transport* both[2];
  tithe_error error;
  pthread_t other;
  if (tithe_open_loop(2, both, &error) != TITHE_OK) return fprintf(stderr, "%s\n", error.what), 1;
  for (int r = 0; r < 2; ++r) ranks[r].transport = both[r];
  if (pthread_create(&other, NULL, run, &ranks[1]) != 0) return 1;
  run(&ranks[0]);
  pthread_join(other, NULL);
  const int same = memcmp(ranks[0].outer, ranks[1].outer, sizeof ranks[0].outer) == 0;
  float off = 0;
  for (int i = 0; i < kValues; ++i) off = fmaxf(off, fabsf(ranks[0].outer[i] - 1.05F));
  printf("%d exchanges of %d steps: the same on both ranks: %s, off by %.2g at most\n", kExchanges, kSteps,
         same ? "yes" : "no", (double)off);
  return ranks[0].failed || ranks[1].failed || !same || off >= 0.05F;
}
