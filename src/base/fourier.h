// SPDX-License-Identifier: Apache-2.0
#pragma once
// The discrete Fourier transform of 2^m complex numbers, in one fixed order of operations: equal bits on every machine.
//
//   X[f] = sum over j of x[j] e^(-2 pi i f j / 2^m)
//
// Stage by stage: with h = 1, 2, 4, ... 2^(m-1), the pair (a, b) at indices s + k and s + k + h, for each s that is a
// multiple of 2h and each k < h, becomes (a + t, a - t), where t = b e^(-pi i k / h) as computed by turned().
//
// No FFT library is used, because payloads depend on the order of operations and on every bit of the tables. A library
// installed on each machine fixes neither, and takes its tables from the C library's sine. It also transforms one array
// after the other, while codec/fft transforms one array per vector lane.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tithe::fourier {

struct Complex {
  float re, im;
};

inline constexpr int kMaxLog = 15;

struct Tables {
  std::size_t length = 0;                   // 2^m
  std::vector<Complex> turn;                // e^(-pi i k / 2^m), k < 2^(m-1), rounded to the nearest float
  std::vector<std::uint32_t> bit_reversed;  // j with its m bits reversed
};

// Created at first use and cached; 1 <= m <= kMaxLog.
const Tables& tables(int m);

inline Complex times(Complex z, Complex w) { return {z.re * w.re - z.im * w.im, z.re * w.im + z.im * w.re}; }

// z e^(-pi i k / half), k < half. The second half of the factors are those of the first half times an exact quarter
// turn.
inline Complex turned(const Tables& tables, Complex z, std::size_t k, std::size_t half) {
  const bool quarter = 2 * k >= half && half > 1;
  if (quarter) k -= half / 2;
  if (k != 0) z = times(z, tables.turn[k * (tables.length / half)]);
  return quarter ? Complex{z.im, -z.re} : z;
}

// In place: on input x[j] is at index bit_reversed[j], on output X[f] is at index f.
void transform(const Tables& tables, std::span<Complex> z);

}  // namespace tithe::fourier
