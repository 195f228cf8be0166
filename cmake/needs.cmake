# SPDX-License-Identifier: Apache-2.0
# What the library is linked with: read by the build, and by programs that link the installed static kind.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
set(TITHE_NEEDS fmt::fmt PkgConfig::HWY PkgConfig::XXHASH PkgConfig::UCX OpenSSL::Crypto)
