// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cublasLt.h>

#include <tutti/core/bfloat16.hpp>

#include <algorithm>
#include <cmath>
#include <chrono>
#include <cstring>
#include <thread>

struct cublasLtContext {
  int unused = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute{};
  cudaDataType_t scale{};
  std::int32_t a_operation = CUBLAS_OP_N, b_operation = CUBLAS_OP_N, epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* saved = nullptr;
  std::int64_t saved_leading = 0;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type{};
  std::int64_t rows = 0, columns = 0, leading = 0, offset = 0;
  std::int32_t batches = 1;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = 7, alignment[4] = {256, 256, 256, 256};
};

namespace {

using Desc = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;

constexpr std::uint64_t seal = 0x7475747469a190b5u;
bool epilogues_refused = false;
int fastest = -1;
int asked = 0, taken = -1, unwritten = 0;
cublasLtReductionScheme_t scheme_taken = CUBLASLT_REDUCTION_SCHEME_NONE;
std::int64_t extents_taken[3] = {};
std::int32_t epilogue_taken = CUBLASLT_EPILOGUE_DEFAULT;

template <class T>
cublasStatus_t set(T& field, void const* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

double element(cudaDataType_t type, void const* memory, std::int64_t index) {
  if (type == CUDA_R_64F) return static_cast<double const*>(memory)[index];
  if (type == CUDA_R_32F) return double{static_cast<float const*>(memory)[index]};
  return double{float(static_cast<tutti::bfloat16 const*>(memory)[index])};
}
void write(cudaDataType_t type, void* memory, std::int64_t index, double value) {
  if (type == CUDA_R_64F) static_cast<double*>(memory)[index] = value;
  else if (type == CUDA_R_32F) static_cast<float*>(memory)[index] = static_cast<float>(value);
  else static_cast<tutti::bfloat16*>(memory)[index] = tutti::bfloat16(static_cast<float>(value));
}

/// As far as algorithms care.
unsigned alignment_of(void const* pointer) {
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  return address % 16 == 0 ? 16u : static_cast<unsigned>(address & (~address + 1));
}

bool has(std::int32_t epilogue, std::int32_t part) { return (epilogue & part) == part; }

/// INVALID_VALUE for what contradicts itself, NOT_SUPPORTED for what no kernel does.
cublasStatus_t examine(Desc const& desc, Layout const& a, Layout const& b, Layout const& c, Layout const& d) {
  bool const at = desc.a_operation == CUBLAS_OP_T, bt = desc.b_operation == CUBLAS_OP_T;
  std::int64_t const m = d.rows, n = d.columns, k = at ? a.rows : a.columns;
  if ((at ? a.columns : a.rows) != m || (bt ? b.rows : b.columns) != n || (bt ? b.columns : b.rows) != k ||
      c.rows != m || c.columns != n || m <= 0 || n <= 0 || k <= 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  for (Layout const* layout : {&a, &b, &c, &d})
    if (layout->leading < layout->rows || layout->batches != d.batches) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.type != b.type || c.type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  bool const wide = desc.compute == CUBLAS_COMPUTE_64F;
  if ((desc.scale == CUDA_R_64F) != wide) return CUBLAS_STATUS_NOT_SUPPORTED;
  bool const fits = wide                     ? a.type == CUDA_R_64F && d.type == CUDA_R_64F
                    : a.type == CUDA_R_32F   ? d.type == CUDA_R_32F
                    : a.type == CUDA_R_16BF  ? d.type != CUDA_R_64F && desc.compute == CUBLAS_COMPUTE_32F
                                             : false;
  if (!fits) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (epilogues_refused || wide || d.batches != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has(desc.epilogue, 128)) {
    if (desc.saved_leading < m || desc.saved_leading % 8 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (reinterpret_cast<std::uintptr_t>(desc.saved) % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

std::uint64_t digest(Desc const& desc, Layout const& a, Layout const& b, Layout const& c, Layout const& d) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  auto const mix = [&](std::int64_t value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3u; };
  for (std::int64_t value : {std::int64_t{desc.compute}, std::int64_t{desc.a_operation}, std::int64_t{desc.b_operation},
                             std::int64_t{desc.epilogue}, desc.saved_leading})
    mix(value);
  for (Layout const* layout : {&a, &b, &c, &d})
    for (std::int64_t value : {std::int64_t{layout->type}, layout->rows, layout->columns, layout->leading,
                               layout->offset, std::int64_t{layout->batches}})
      mix(value);
  return hash;
}

struct Call {
  Desc desc;
  Layout a_layout, b_layout, c_layout, d_layout;
  double alpha, beta;
  void const *a, *b, *c;
  void* d;
  void* workspace;
  std::size_t workspace_bytes;
  bool slow;

  void operator()() const {
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::memset(workspace, 0xff, workspace_bytes);
    bool const at = desc.a_operation == CUBLAS_OP_T, bt = desc.b_operation == CUBLAS_OP_T;
    std::int64_t const m = d_layout.rows, n = d_layout.columns, k = at ? a_layout.rows : a_layout.columns;
    auto const a_at = [&](std::int64_t i, std::int64_t p) {
      return at ? p + i * a_layout.leading : i + p * a_layout.leading;
    };
    auto const b_at = [&](std::int64_t p, std::int64_t j) {
      return bt ? j + p * b_layout.leading : p + j * b_layout.leading;
    };
    for (std::int64_t batch = 0; batch < d_layout.batches; ++batch) {
      std::int64_t const a0 = batch * a_layout.offset, b0 = batch * b_layout.offset, c0 = batch * c_layout.offset,
                         d0 = batch * d_layout.offset;
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) {
          double value = 0;
          for (std::int64_t p = 0; p < k; ++p)
            value += element(a_layout.type, a, a0 + a_at(i, p)) * element(b_layout.type, b, b0 + b_at(p, j));
          if (std::isnan(value)) ++unwritten;
          value *= alpha;
          if (beta != 0) value += beta * element(c_layout.type, c, c0 + i + j * c_layout.leading);
          if (has(desc.epilogue, 4)) value += element(d_layout.type, desc.bias, i);
          std::int64_t const saved = i + j * desc.saved_leading;
          if (has(desc.epilogue, 32)) {
            if (has(desc.epilogue, 128)) write(d_layout.type, desc.saved, saved, value);
            double const u = std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value);
            value = 0.5 * value * (1 + std::tanh(u));
          }
          if (has(desc.epilogue, 64)) {
            double const x = element(d_layout.type, desc.saved, saved);
            double const u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
            value *= 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
          }
          write(d_layout.type, d, d0 + i + j * d_layout.leading, value);
        }
    }
    if (has(desc.epilogue, 512))
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p) sum += element(b_layout.type, b, b_at(p, j));
        write(d_layout.type, desc.bias, j, sum);
      }
  }
};

}  // namespace

namespace emulated {
void refuse_epilogues(bool refuse) { epilogues_refused = refuse; }
int heuristics_asked() { return asked; }
int last_algorithm() { return taken; }
cublasLtReductionScheme_t last_scheme() { return scheme_taken; }
std::array<std::int64_t, 3> last_extents() { return {extents_taken[0], extents_taken[1], extents_taken[2]}; }
void make_fastest(int algorithm) { fastest = algorithm; }
int sums_of_nan() { return unwritten; }
cublasLtEpilogue_t last_epilogue() { return static_cast<cublasLtEpilogue_t>(epilogue_taken); }
}  // namespace emulated

char const* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}
std::size_t cublasLtGetVersion() { return 130000; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  *desc = new Desc{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              void const* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(desc->a_operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(desc->b_operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(desc->saved, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(desc->saved_leading, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  *layout = new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void const* value,
                                                std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(layout->batches, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(layout->offset, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, void const* value,
                                                    std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(preference->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(preference->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(preference->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(preference->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(preference->alignment[3], value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  ++asked;
  *found = 0;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (wanted <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (cublasStatus_t const status = examine(*desc, *a, *b, *c, *d); status != CUBLAS_STATUS_SUCCESS) return status;
  // The best first, as the heuristic sees it: parts of sums added in place, in any order.
  constexpr std::uint32_t schemes[] = {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_NONE,
                                       CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};
  for (int index = 0; index < 4 && *found < wanted; ++index) {
    std::uint32_t const scheme = schemes[index];
    if (scheme != CUBLASLT_REDUCTION_SCHEME_NONE && (preference->schemes & scheme) == 0) continue;
    std::size_t const workspace = static_cast<std::size_t>(std::max(index - 1, 0)) * 4096;
    if (workspace > preference->workspace) break;
    auto& result = results[(*found)++];
    result = {};
    result.algo.data[0] = seal;
    result.algo.data[1] = digest(*desc, *a, *b, *c, *d);
    result.algo.data[2] = static_cast<std::uint64_t>(index - 1);
    result.algo.data[3] = workspace;
    unsigned const alignment[6] = {preference->alignment[0], preference->alignment[1], preference->alignment[2],
                                   preference->alignment[3], alignment_of(desc->bias), alignment_of(desc->saved)};
    for (int operand = 0; operand < 6; ++operand)
      result.algo.data[4] |= std::uint64_t{std::min(alignment[operand], 16u)} << (8 * operand);
    result.algo.data[5] = scheme;
    result.workspaceSize = workspace;
  }
  return *found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       cublasLtMatmulAlgo_t const* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (cublasStatus_t const status = examine(*desc, *a, *b, *c, *d); status != CUBLAS_STATUS_SUCCESS) return status;
  if (algorithm->data[0] != seal || algorithm->data[1] != digest(*desc, *a, *b, *c, *d))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->algo = *algorithm;
  result->workspaceSize = static_cast<std::size_t>(algorithm->data[3]);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, void const* alpha, void const* a,
                              cublasLtMatrixLayout_t a_layout, void const* b, cublasLtMatrixLayout_t b_layout,
                              void const* beta, void const* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, cublasLtMatmulAlgo_t const* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (cublasStatus_t const status = examine(*desc, *a_layout, *b_layout, *c_layout, *d_layout);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (algorithm == nullptr || algorithm->data[0] != seal ||
      algorithm->data[1] != digest(*desc, *a_layout, *b_layout, *c_layout, *d_layout))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm->data[3] > workspace_bytes || (workspace == nullptr && algorithm->data[3] > 0) ||
      reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  bool const wants_bias = has(desc->epilogue, 4) || has(desc->epilogue, 512);
  void const* const operands[6] = {a, b, c, d, wants_bias ? desc->bias : nullptr,
                                   has(desc->epilogue, 128) ? desc->saved : nullptr};
  for (int operand = 0; operand < 6; ++operand)
    if ((operands[operand] == nullptr && operand < 4) ||
        alignment_of(operands[operand]) < (algorithm->data[4] >> (8 * operand) & 0xff))
      return CUBLAS_STATUS_INVALID_VALUE;
  if ((wants_bias && desc->bias == nullptr) || (has(desc->epilogue, 128) && desc->saved == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  bool const wide = desc->scale == CUDA_R_64F;
  taken = static_cast<int>(algorithm->data[2]);
  scheme_taken = static_cast<cublasLtReductionScheme_t>(algorithm->data[5]);
  extents_taken[0] = d_layout->rows, extents_taken[1] = d_layout->columns;
  extents_taken[2] = desc->a_operation == CUBLAS_OP_T ? a_layout->rows : a_layout->columns;
  epilogue_taken = desc->epilogue;
  Call const call{*desc, *a_layout, *b_layout, *c_layout, *d_layout,
                  wide ? *static_cast<double const*>(alpha) : double{*static_cast<float const*>(alpha)},
                  wide ? *static_cast<double const*>(beta) : double{*static_cast<float const*>(beta)},
                  a, b, c, d, workspace, static_cast<std::size_t>(algorithm->data[3]),
                  fastest >= 0 && fastest != taken};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  return emulated::launch(config, reinterpret_cast<void const*>(&cublasLtMatmul), call) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
