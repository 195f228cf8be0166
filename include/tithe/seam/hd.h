// SPDX-License-Identifier: Apache-2.0
#pragma once
// TITHE_HD marks the per-value bodies that host code and CUDA kernels share.
#ifdef __CUDACC__
#define TITHE_HD __host__ __device__
#else
#define TITHE_HD
#endif
