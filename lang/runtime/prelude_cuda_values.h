// SPDX-License-Identifier: Apache-2.0
// Kernels that do not depend on a program (device_program.h); follows prelude_cuda_bytes.h. They compute a result's
// mean and its largest magnitude, and copy values or convert values of 16 bits to fp32 and back with the bits of
// engine/program/convert.h. A thread block processes kEach values.
enum { kEach = 8 * kThreads };
DEV uint64_t end_of_each(const Call* call, uint64_t at) {
  const uint64_t end = (at + 1) * kEach;
  return end < call->n ? end : call->n;
}

// answer[0] becomes the bits of the largest magnitude; NaN has the largest bits.
struct Magnitude {
  U largest;
};
DEV void no_values(const Call*, Magnitude& s, uint64_t, U thread) {
  if (thread == 0) s.largest = 0;
}
DEV void finish_values(const Call* call, Magnitude& s, uint64_t at, U thread) {
  U largest = 0;
  for (uint64_t i = at * kEach + thread; i < end_of_each(call, at); i += kThreads) {
    if (call->divide != 1) call->out[i] = div_(call->out[i], F(call->divide));
    largest = max_(largest, bits_(call->out[i]) & 0x7fffffffU);
  }
  if (largest != 0) atomic_max(&s.largest, largest);
}
DEV void tell_largest(const Call* call, Magnitude& s, uint64_t, U thread) {
  if (thread == 0) atomic_max(call->answer, s.largest);
}
KERNEL(tithe_finish, Magnitude, PHASE(no_values) PHASE(finish_values) PHASE(tell_largest))

// The type of the values at call->payload, in field_bits: 0 is fp16.
enum { kBf16 = 1, kFp32 = 2 };
DEV F from_bf16(U h) { return float_(h << 16); }
DEV U to_bf16(F v) {
  const U bits = bits_(v);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return bits >> 16 | 0x40U;
  return bits + 0x7fffU + (bits >> 16 & 1U) >> 16;
}
DEV F from_fp16(U h) {
  const U sign = (h & 0x8000U) << 16, rest = (h & 0x7fffU) << 13;
  if (rest >= 0x0f800000U) return float_(sign | rest | 0x7f800000U);
  return float_(sign | bits_(mul(float_(rest), 0x1p112f)));
}
DEV U to_fp16(F v) {
  const U bits = bits_(v), sign = bits >> 16 & 0x8000U, size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return sign | 0x7e00U;
  if (size >= 0x477ff000U) return sign | 0x7c00U;
  if (size < 0x38800000U) return sign | (bits_(add(float_(size), 0.5f)) - 0x3f000000U);
  return sign | (size - 0x38000000U + 0xfffU + (size >> 13 & 1U) >> 13);
}
DEV void widen(const Call* call, Nothing&, uint64_t at, U thread) {
  const uint16_t* const from = reinterpret_cast<const uint16_t*>(call->payload);
  const F* const floats = reinterpret_cast<const F*>(call->payload);
  for (uint64_t i = at * kEach + thread; i < end_of_each(call, at); i += kThreads)
    call->out[i] = call->field_bits == kFp32   ? floats[i]
                   : call->field_bits == kBf16 ? from_bf16(from[i])
                                               : from_fp16(from[i]);
}
KERNEL(tithe_widen, Nothing, PHASE(widen))
DEV void narrow(const Call* call, Nothing&, uint64_t at, U thread) {
  uint16_t* const to = reinterpret_cast<uint16_t*>(call->payload);
  F* const floats = reinterpret_cast<F*>(call->payload);
  for (uint64_t i = at * kEach + thread; i < end_of_each(call, at); i += kThreads) {
    if (call->field_bits == kFp32)
      floats[i] = call->grad[i];
    else
      to[i] = uint16_t(call->field_bits == kBf16 ? to_bf16(call->grad[i]) : to_fp16(call->grad[i]));
  }
}
KERNEL(tithe_narrow, Nothing, PHASE(narrow))
