// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Every macro of the library. A macro is here because no language feature does its work.

/// TUTTI_DEBUG is 1 when element access and other cheap preconditions are checked. It follows NDEBUG unless
/// the user defines it. It must be the same in all translation units of a program.
#ifndef TUTTI_DEBUG
#ifdef NDEBUG
#define TUTTI_DEBUG 0
#else
#define TUTTI_DEBUG 1
#endif
#endif

/// TUTTI_HAS_X86 is 1 where the vector paths for x86-64 can be compiled. Elsewhere only the scalar path exists.
#if defined(__x86_64__) && !defined(__CUDA_ARCH__)
#define TUTTI_HAS_X86 1
#else
#define TUTTI_HAS_X86 0
#endif

/// TUTTI_SANITIZED is 1 under the address or thread sanitizer, which do not see what assembly reads and writes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TUTTI_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TUTTI_SANITIZED 1
#endif
#endif
#ifndef TUTTI_SANITIZED
#define TUTTI_SANITIZED 0
#endif

/// TUTTI_WASM is 1 where the library is compiled to WebAssembly: one thread, files read instead of mapped, no regular
/// expressions (docs/adr/0029-infer-as-webassembly.md).
#ifdef __wasm__
#define TUTTI_WASM 1
#else
#define TUTTI_WASM 0
#endif

/// TUTTI_WITH_MPI is 1 in programs that are built with an MPI library: <tutti/backend/any.hpp> then offers it. Meson's
/// and pkg-config's tutti-mpi and CMake's tutti::mpi define it.
#ifndef TUTTI_WITH_MPI
#define TUTTI_WITH_MPI 0
#endif
/// The same of NCCL with CUDA; Meson's tutti-nccl defines it.
#ifndef TUTTI_WITH_NCCL
#define TUTTI_WITH_NCCL 0
#endif
/// And of CUDA, in programs that nvcc compiles: <tutti/infer/cuda/find_device.hpp> then offers GPUs for layers.
#ifndef TUTTI_WITH_CUDA
#define TUTTI_WITH_CUDA 0
#endif
/// And of ncurses and of cpp-httplib, with which <tutti/watch/any.hpp> shows a run on a terminal and as a page.
#ifndef TUTTI_WITH_TERMINAL
#define TUTTI_WITH_TERMINAL 0
#endif
#ifndef TUTTI_WITH_HTTP
#define TUTTI_WITH_HTTP 0
#endif
/// And of protobuf, with which <tutti/train/onnx/export.hpp> writes ONNX models (readers do without it). Meson's
/// tutti-onnx defines it.
#ifndef TUTTI_WITH_ONNX
#define TUTTI_WITH_ONNX 0
#endif

/// TUTTI_SEPARATE_COMPILATION is 1 in programs that compile the kernels and the compiler of graphs once, in a source
/// that includes <tutti/source.hpp>, and not in every source that uses them. It must be the same in all translation
/// units of a program; Meson's tutti-compiled brings both. 0: headers alone.
#ifndef TUTTI_SEPARATE_COMPILATION
#define TUTTI_SEPARATE_COMPILATION 0
#endif
/// TUTTI_BODIES is 1 where they are compiled.
#ifndef TUTTI_BODIES
#define TUTTI_BODIES !TUTTI_SEPARATE_COMPILATION
#endif
/// Before a function whose body is compiled there.
#if TUTTI_SEPARATE_COMPILATION
#define TUTTI_INLINE
#else
#define TUTTI_INLINE inline
#endif

/// Inlining that the vector layer relies on: a function that is not inlined loses its target's registers.
#define TUTTI_ALWAYS_INLINE inline __attribute__((always_inline))
