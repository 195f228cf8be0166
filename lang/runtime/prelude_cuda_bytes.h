// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated kernels (emit_cuda.h): calls and kernels, codes as bytes, and reductions. If
// TITHE_PLANS is defined, the host launches the kernels of a plan (device_program.h), and prelude_cuda_values.h
// follows.

struct State;
struct Plan;
struct Call {
  double settings[12];
  uint64_t n, key, shared_key;
  const float* grad;
  const float* residual;   // may be null
  float* left;             // may be null
  uint8_t* payload;        // of decode: checked by the host
  uint64_t payload_bytes;  // of decode
  const float* base;       // of decode; may be null
  float* out;              // of decode
  uint64_t* bytes;         // of encode: number of bytes written
  // kAnswers zeros on entry; [0] is set to 1 for a non-finite value, [1 + k] if item k violates its `where`.
  uint32_t* answer;
  uint8_t* scratch;  // tithe_scratch(call) bytes, aligned for double
  // For later phases: the previous phase's items as plain arrays, with one number, one per block, or one per value,
  // and at least one element (lang/run/context.h); the number of ranks in its sum; and the bits of a field.
  const uint32_t* agreed[32];
  // Agreed_ranks in decode by a codec's own kernels: the number of payloads.
  uint32_t agreed_ranks, field_bits;
  double divide;  // of tithe_finish
  Plan* plan;     // of planning kernels
  // Pointers into the scratch, set by tithe_encode.
  void* found;
  void* parts;
  State* state;
  uint32_t* keys;
  uint32_t* tally;
  uint32_t* table;
  uint64_t* places;
  uint64_t* groups;
  uint8_t* codes;
  uint8_t* fives;
  uint8_t* stream;
  uint32_t* ints;
};

// ---- The argument of a kernel. With a plan it is a batch: one launch runs the calls of several tensors. Each thread
// block works for one tensor. Kernels of TILES run `rounds` calls of that tensor one after the other, one per payload;
// other kernels run one
#if defined(TITHE_PLANS)
struct Batch {
  const Call* calls;     // a row of `row` calls for each tensor, of which the kernel runs the first `rounds`
  const uint64_t* ends;  // by tensor: the number of thread blocks of this and all earlier tensors
  uint32_t tensors, row, rounds, unused;
};
typedef Batch Argument;
DEV U tensor_at(const Batch& of, uint64_t block) {
  U low = 0, high = of.tensors - 1;
  while (low < high) {
    const U middle = (low + high) / 2;
    if (of.ends[middle] <= block)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
#define FIND_CALLS(argument, place)                                                 \
  const U tensor = tensor_at(argument, place);                                      \
  const uint64_t block = (place) - (tensor == 0 ? 0 : (argument).ends[tensor - 1]); \
  const Call* const row_calls = (argument).calls + uint64_t(tensor) * (argument).row;
#define ONE_CALL(argument) const U call_round = 0;
#define EACH_CALL(argument) for (U call_round = 0; call_round < (argument).rounds; ++call_round)
#define THIS_CALL(argument) row_calls[call_round]
// Shared memory needs no registers, and an index into the table would need some for the whole kernel.
#define TAKE_CALL(argument)                                                                \
  __shared__ Call given;                                                                   \
  for (U k = threadIdx.x; k < sizeof given / 4; k += kThreads)                             \
    reinterpret_cast<U*>(&given)[k] = reinterpret_cast<const U*>(&THIS_CALL(argument))[k]; \
  __syncthreads();
#else
typedef Call Argument;
#define FIND_CALLS(argument, place) const uint64_t block = place;
#define ONE_CALL(argument)
#define EACH_CALL(argument)
#define THIS_CALL(argument) argument
#define TAKE_CALL(argument) const Call& given = argument;
#endif

// ---- A kernel is a list of phases, which are per-thread functions with a barrier behind each one. Several groups of
// threads may share a thread block. Each group works at one position below count(n). A STEP is a phase that works at
// position placed(call, group, step), if that is below count(n). In a kernel of TILES each thread has registers of type
// Own from phase to phase, and a TILE_PHASE is a function template for whole tiles and others (prelude_cuda_tiles.h)
#define GROUPS(name, Common, of, count, ...) GRID(name, Common, Nothing, of, count, ONE_CALL, __VA_ARGS__)
#define TILES(name, Common, Own, ...) GRID(name, Common, Own, kGroup, runs_of, EACH_CALL, __VA_ARGS__)
#define KERNEL(name, Common, ...) GROUPS(name, Common, kThreads, everywhere, __VA_ARGS__)
DEV uint64_t everywhere(uint64_t) { return ~uint64_t(0); }
#if defined(__CUDACC__)
#define GRID(name, Common, Own, of, count, CALLS, ...)                                                     \
  extern "C" __global__ void __launch_bounds__(kThreads) name(const __grid_constant__ Argument argument) { \
    __shared__ Common all_shared[kThreads / (of)];                                                         \
    FIND_CALLS(argument, uint64_t(blockIdx.x))                                                             \
    CALLS(argument) {                                                                                      \
      [[maybe_unused]] Own own;                                                                            \
      TAKE_CALL(argument)                                                                                  \
      const Call* const call = &given;                                                                     \
      Common& s = all_shared[threadIdx.x / (of)];                                                          \
      const uint64_t at = block * (kThreads / (of)) + threadIdx.x / (of);                                  \
      const U thread = threadIdx.x % (of);                                                                 \
      const bool is_there = at < count(call->n);                                                           \
      __VA_ARGS__                                                                                          \
    }                                                                                                      \
  }
#define PHASE(f)                        \
  if (is_there) f(call, s, at, thread); \
  __syncthreads();
#define STEP(f, placed, count, step)                                                                   \
  if (is_there && placed(call, at, step) < count(call->n)) f(call, s, placed(call, at, step), thread); \
  __syncthreads();
#define TILE_PHASE(f)                       \
  if (is_there) {                           \
    const Tile tile = tile_of(call, at);    \
    if (tile.values == kTile)               \
      f<true>(call, s, own, tile, thread);  \
    else                                    \
      f<false>(call, s, own, tile, thread); \
  }                                         \
  __syncthreads();
#endif
#if defined(__CUDACC__) && !defined(TITHE_PLANS)
typedef cudaStream_t Stream;
#define LAUNCH(kernel, blocks) kernel<<<unsigned(blocks), kThreads, 0, stream>>>(*call)
#define API extern "C"
#define HOST static
#endif
#if defined(__CUDA_ARCH__)
DEV void atomic_add(U* to, U v) { atomicAdd(to, v); }
DEV void atomic_max(U* to, U v) { atomicMax(to, v); }
DEV void say(const Call* call, int k) { *static_cast<volatile U*>(call->answer + k) = 1; }
#else
DEV void atomic_add(U* to, U v) { __atomic_fetch_add(to, v, __ATOMIC_RELAXED); }
DEV void atomic_max(U* to, U v) {
  U known = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (known < v && !__atomic_compare_exchange_n(to, &known, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}
DEV void say(const Call* call, int k) { __atomic_store_n(call->answer + k, 1, __ATOMIC_RELAXED); }
#endif
DEV uint64_t up8(uint64_t bytes) { return (bytes + 7) / 8 * 8; }
DEV uint64_t parts_in(uint64_t n, uint64_t length) { return n == 0 ? 1 : (n + length - 1) / length; }

// ---- Planning, if the host code was not compiled with the kernels: a kernel of one thread runs the launching
// functions, and writes the scratch size and the list of kernels with their thread block counts to call->plan
#if defined(TITHE_PLANS)
enum { kMaxLaunches = 64, kMaxName = 56 };
struct Launch {
  uint64_t blocks;
  char kernel[kMaxName];
};
struct Plan {
  void* within[12];  // the call's pointers into the scratch: found and those behind it
  uint64_t scratch, launches;
  Launch launch[kMaxLaunches];
};
typedef Plan* Stream;
DEV void plan_launch(Plan* plan, const Call* call, const char* kernel, uint64_t blocks) {
  memcpy(plan->within, &call->found, sizeof plan->within);
  const uint64_t at = plan->launches++;
  if (at >= kMaxLaunches) return;
  plan->launch[at].blocks = blocks;
  for (int k = 0; k < kMaxName; ++k) {
    plan->launch[at].kernel[k] = *kernel;
    if (*kernel != 0) ++kernel;
  }
}
#define LAUNCH(kernel, blocks) plan_launch(stream, call, #kernel, blocks)
#define API DEV
#define HOST DEV
#define PLAN(name, scratch_of, launch_all)                             \
  DEV void of_##name(const Call* call, Nothing&, uint64_t, U thread) { \
    if (thread != 0) return;                                           \
    call->plan->scratch = scratch_of(call);                            \
    call->plan->launches = 0;                                          \
    launch_all(call, call->plan);                                      \
  }                                                                    \
  KERNEL(name, Nothing, PHASE(of_##name))
#else
#define PLAN(name, scratch_of, launch_all)
#endif

// ---- Bytes
DEV U raw(F v) { return bits_(v); }
DEV U raw(I v) { return U(v); }
DEV U raw(U v) { return v; }
DEV U raw(M v) { return v ? 1U : 0U; }
DEV void put(uint8_t* to, U v, int bytes) {
  if (bytes == 4 && is_aligned<4>(to)) return store(reinterpret_cast<U*>(to), v);
  for (int k = 0; k < bytes; ++k) store(to + k, uint8_t(v >> (8 * k)));
}
DEV U get(const uint8_t* from, int bytes) {
  if (bytes == 4 && is_aligned<4>(from)) return fetch(reinterpret_cast<const U*>(from));
  U v = 0;
  for (int k = 0; k < bytes; ++k) v |= U(fetch(from + k)) << (8 * k);
  return v;
}
DEV bool is_finite(F v) { return fabsf(v) <= 0x1.fffffep127f; }
DEV F taken(const Call* call, size_t i) {
  return call->residual == nullptr ? call->grad[i] : add(call->grad[i], call->residual[i]);
}

// ---- Reductions: one thread combines the lanes (lang/run/reduce.h)
template <class T>
DEV T total_of(T* lane) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] = add(lane[k], lane[k + half]);
  return lane[0];
}
// Likewise with a function of the program (lang/run/tables.h).
template <class T, class Of>
DEV T total_by(T* lane, Of of) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] = of(lane[k], lane[k + half]);
  return lane[0];
}
template <class T, class Of>
DEV T total_of_piece(T start, T piece, Of of) {
  T lane[kLanes];
  for (int k = 0; k < kLanes; ++k) lane[k] = start;
  lane[0] = of(start, piece);
  return total_by(lane, of);
}
template <class T>
DEV T within(T sum, T most) {
  return sum < -most ? -most : most < sum ? most : sum;
}
// Updates the largest or smallest value so far and its position: the first of equal values; skips NaN.
const U kNowhere = 0xffffffffU;
template <bool kLargest, class T>
DEV void look_at(T v, U place, T& best, U& where) {
  if (v != v || place == kNowhere) return;
  const bool better = kLargest ? best < v : v < best;
  if (where == kNowhere || better || (v == best && place < where)) {
    best = v;
    where = place;
  }
}
// These read every `by`-th lane.
template <bool kLargest, class T>
DEV void end_of(const T* lane, const U* place, U lanes, U by, T& best, U& where) {
  best = 0;
  where = kNowhere;
  for (U k = 0; k < lanes; k += by) look_at<kLargest>(lane[k], place[k], best, where);
}
template <class T>
DEV T max_lane(const T* lane, U lanes, U by) {
  T most = 0;
  for (U k = 0; k < lanes; k += by) most = max_(most, lane[k]);
  return most;
}
DEV U sum_of(const U* lane, U lanes, U by) {
  U s = 0;
  for (U k = 0; k < lanes; k += by) s += lane[k];
  return s;
}

// ---- Scans over one number per thread, by rows of kLanes threads: one phase combines each row; in the next phase
// each thread combines the rows before its own, and its own row up to itself
enum { kRows = kThreads / kLanes };
template <class T>
struct Rows {
  T of[kThreads], row[kRows];
};
struct Adds {
  template <class T>
  DEV_IN T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <class T>
  DEV_IN T operator()(T a, T b) const {
    return b < a ? a : b;
  }
};
template <class Of, class T>
DEV void put_rows(Rows<T>& rows, U thread) {
  if (thread >= kRows) return;
  T all = 0;
  for (U t = kLanes * thread; t < kLanes * (thread + 1); ++t) all = Of()(all, rows.of[t]);
  rows.row[thread] = all;
}
template <class Of, class T>
DEV T before(const Rows<T>& rows, U thread) {
  T all = 0;
  for (U r = 0; r < thread / kLanes; ++r) all = Of()(all, rows.row[r]);
  for (U t = thread / kLanes * kLanes; t < thread; ++t) all = Of()(all, rows.of[t]);
  return all;
}
template <class Of, class T>
DEV T all_of(const Rows<T>& rows) {
  T all = 0;
  for (U r = 0; r < kRows; ++r) all = Of()(all, rows.row[r]);
  return all;
}
