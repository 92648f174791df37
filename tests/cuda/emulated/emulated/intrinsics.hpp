// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Functions of single threads: arithmetic, bits, loads and stores with hints, atomics.
///
/// Threads change only where they wait, so plain code is atomic. Approximate functions are the exact ones here.

#include "emulated/block.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <source_location>

// ---- Arithmetic. g++ does not contract products and sums for x86-64's base; where CUDA says __fmaf_rn it is one. ----
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

// ---- Bits ----
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((std::uint64_t{a} * b) >> 32); }

// ---- Memory ----
template <class T>
T __ldg(T const* p) {
  return *p;
}
template <class T>
T __ldcg(T const* p) {
  return *p;
}
template <class T>
T __ldcs(T const* p) {
  return *p;
}
template <class T>
T __ldca(T const* p) {
  return *p;
}
template <class T>
void __stcg(T* p, T value) {
  *p = value;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <class T>
T atomicAdd(T* p, T value) {
  T const old = *p;
  *p = static_cast<T>(old + value);
  return old;
}
template <class T>
T atomicMax(T* p, T value) {
  T const old = *p;
  if (value > old) *p = value;
  return old;
}
template <class T>
T atomicMin(T* p, T value) {
  T const old = *p;
  if (value < old) *p = value;
  return old;
}
template <class T>
T atomicOr(T* p, T value) {
  T const old = *p;
  *p = old | value;
  return old;
}
template <class T>
T atomicExch(T* p, T value) {
  T const old = *p;
  *p = value;
  return old;
}
template <class T>
T atomicCAS(T* p, T expected, T value) {
  T const old = *p;
  if (old == expected) *p = value;
  return old;
}
/// Counts up and starts again at 0 after `last`.
inline unsigned atomicInc(unsigned* p, unsigned last) {
  unsigned const old = *p;
  *p = old >= last ? 0 : old + 1;
  return old;
}

[[noreturn]] inline void __trap(std::source_location where = std::source_location::current()) {
  emulated::fail("__trap", where);
}
