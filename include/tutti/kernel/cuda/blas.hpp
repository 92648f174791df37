// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// cuBLASLt for one context: its handle, and for every product that was met how it is computed.
///
/// A plan holds the library's descriptors and one of its algorithms, found by everything that the choice depends on.
/// It is made at the first product of its kind: by the choice that another process made, where there is one; with
/// `autotune` and outside of a capture by timing what the heuristic proposes on the operands at hand, the result going
/// to scratch memory; otherwise it is the heuristic's first. Only algorithms whose sums have a fixed order are asked
/// for, so a plan gives the same bits every time. Without `autotune` two processes choose the same; with it they may
/// not, unless one gets the other's choices (tutti/kernel/cuda/blas_choices.hpp).

#include <tutti/core/list.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/kernel/cuda/context.hpp>

#include <cublasLt.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <source_location>
#include <utility>

namespace tutti::kernel::cuda {

struct BlasOptions {
  bool tf32 = false;     ///< products of float operands round them to TF32: 10 bits of fraction, many times as fast
  bool autotune = false;  ///< whether algorithms are chosen by their time on this device
  std::size_t workspace = std::size_t{32} << 20;  ///< bytes of scratch memory that an algorithm may use
};

/// d (m, n) = epilogue(alpha op(a) op(b) + beta c) as cuBLASLt sees it: column by column. Everything that plans depend
/// on.
struct BlasProblem {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0, d_stride = 0, saved_stride = 0;  ///< between columns
  std::int64_t batch = 1, a_batch = 0, b_batch = 0, c_batch = 0, d_batch = 0;
  cudaDataType_t type = CUDA_R_32F;    ///< of a and b
  cudaDataType_t result = CUDA_R_32F;  ///< of c and d, of bias and of saved
  bool a_transposed = false, b_transposed = false;
  bool reads_c = false;  ///< beta is not 0
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  /// Bytes, of a, b, c, d, bias and saved: powers of two up to 16.
  std::uint32_t alignment[6] = {16, 16, 16, 16, 16, 16};
  friend bool operator==(BlasProblem const&, BlasProblem const&) = default;
};

/// An algorithm of the library for one problem. It is of one version of the library and one kind of device.
struct BlasChoice {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;
};

/// Where a product's operands are; all in device memory.
struct BlasOperands {
  void const* a = nullptr;
  void const* b = nullptr;
  void const* c = nullptr;
  void* d = nullptr;
  void const* bias = nullptr;
  void* saved = nullptr;  ///< written, or read by the gradient of GELU
};

template <class = void>
void check_blas(cublasStatus_t status, char const* call, std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  ErrorKind const kind = status == CUBLAS_STATUS_ALLOC_FAILED     ? ErrorKind::out_of_memory
                         : status == CUBLAS_STATUS_NOT_SUPPORTED  ? ErrorKind::unavailable
                         : status == CUBLAS_STATUS_INVALID_VALUE  ? ErrorKind::invalid_argument
                                                                  : ErrorKind::internal;
  throw Error(kind, "cuda", concat(call, " failed"), where).with_native(cublasLtGetStatusString(status));
}

inline std::uint32_t blas_alignment(void const* pointer) noexcept {
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  return address % 16 == 0 ? 16u : static_cast<std::uint32_t>(address & (~address + 1));
}

namespace detail {

/// Owns a descriptor of the library.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
class BlasOwner {
 public:
  BlasOwner() = default;
  BlasOwner(BlasOwner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  BlasOwner& operator=(BlasOwner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~BlasOwner() {
    if (handle_ != nullptr) static_cast<void>(destroy(handle_));
  }
  Handle get() const noexcept { return handle_; }
  Handle* address() noexcept { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

struct BlasPlan {
  BlasProblem problem;
  BlasOwner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  BlasOwner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a, b, c, d;
  BlasChoice choice;
  bool possible = false;  ///< whether the library has an algorithm at all
};

}  // namespace detail

/// Not copyable; used by one thread at a time, with its context.
class Blas {
 public:
  /// Errors: internal, out_of_memory from the library.
  template <class = void>
  explicit Blas(Context& context, BlasOptions const& options = {}) : context_(context), options_(options) {
    tutti::cuda::CurrentDevice const current(context.stream().device());
    check_blas(cublasLtCreate(handle_.address()), "cublasLtCreate");
  }
  Blas(Blas const&) = delete;
  Blas& operator=(Blas const&) = delete;

  Context& context() const noexcept { return context_; }
  BlasOptions const& options() const noexcept { return options_; }
  std::size_t plans() const noexcept { return plans_.size(); }

  /// Calls f(problem, choice) for all products that were met and can be computed.
  template <class F>
  void for_each_choice(F&& f) const {
    for (detail::BlasPlan const& plan : plans_)
      if (plan.possible) f(plan.problem, plan.choice);
  }
  /// What is taken when this product is met first, if the library still finds it fit then.
  template <class = void>
  void prefer(BlasProblem const& problem, BlasChoice const& choice) {
    preferred_.push_back({problem, choice});
  }

  /// Bytes of device memory, aligned to 256, that `can` and `run` need: the workspace and, where algorithms are going
  /// to be timed, room for what the product writes.
  template <class = void>
  std::size_t scratch_bytes(BlasProblem const& problem) const {
    std::size_t const workspace = rounded(options_.workspace);
    return find(problem) != nullptr || !tunes() ? workspace : workspace + Room(problem).bytes;
  }

  /// Whether the library was asked before and cannot compute this.
  bool refuses(BlasProblem const& problem) const noexcept {
    detail::BlasPlan const* const plan = find(problem);
    return plan != nullptr && !plan->possible;
  }

  /// Whether the library can compute this. The first question of a kind may enqueue and time work, see above.
  template <class = void>
  bool can(BlasProblem const& problem, BlasOperands const& operands, void* scratch) {
    return plan_of(problem, operands, scratch).possible;
  }

  /// Enqueues the product; alpha and beta are rounded to float unless operands are double.
  /// Errors: unavailable, where `can` is false; what the library answers.
  template <class = void>
  void run(BlasProblem const& problem, BlasOperands const& operands, double alpha, double beta, void* scratch) {
    detail::BlasPlan& plan = plan_of(problem, operands, scratch);
    if (!plan.possible)
      throw Error(ErrorKind::unavailable, "gemm",
                  concat("cuBLASLt has no algorithm for this product of ", problem.m, " x ", problem.k, " and ",
                         problem.k, " x ", problem.n));
    enqueue(plan, operands, alpha, beta, plan.choice.algorithm, scratch, plan.choice.workspace);
  }

 private:
  static std::size_t rounded(std::size_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

  /// What a product writes, behind the workspace.
  struct Room {
    std::size_t result, saved = 0, bytes;
    explicit Room(BlasProblem const& problem) {
      std::size_t const element = problem.result == CUDA_R_64F ? 8 : problem.result == CUDA_R_32F ? 4 : 2;
      result = rounded(static_cast<std::size_t>(problem.n * problem.d_stride + (problem.batch - 1) * problem.d_batch) *
                       element);
      if ((problem.epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX)
        saved = rounded(static_cast<std::size_t>(problem.n * problem.saved_stride) * element);
      bytes = result + saved;
    }
  };

  bool tunes() const { return options_.autotune && !context_.stream().capturing(); }
  detail::BlasPlan const* find(BlasProblem const& problem) const noexcept {
    for (detail::BlasPlan const& plan : plans_)
      if (plan.problem == problem) return &plan;
    return nullptr;
  }

  template <class T>
  static void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T const& value) {
    check_blas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
  }
  template <class Layout>
  static void make_layout(Layout& layout, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride, std::int64_t batch, std::int64_t offset) {
    check_blas(cublasLtMatrixLayoutCreate(layout.address(), type, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), stride),
               "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    auto const count = static_cast<std::int32_t>(batch);
    check_blas(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
               "cublasLtMatrixLayoutSetAttribute");
    check_blas(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset,
                                                sizeof offset),
               "cublasLtMatrixLayoutSetAttribute");
  }

  template <class = void>
  void enqueue(detail::BlasPlan& plan, BlasOperands const& operands, double alpha, double beta,
               cublasLtMatmulAlgo_t const& algorithm, void* workspace, std::size_t bytes) {
    tutti::cuda::CurrentDevice const current(context_.stream().device());
    // Descriptors carry these two pointers; the library reads descriptors before it returns.
    if (operands.bias != nullptr) set(plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (operands.saved != nullptr) set(plan.operation.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.saved);
    auto const narrow_alpha = static_cast<float>(alpha), narrow_beta = static_cast<float>(beta);
    bool const wide = plan.problem.type == CUDA_R_64F;
    void const* const alphas[] = {&narrow_alpha, &alpha};
    void const* const betas[] = {&narrow_beta, &beta};
    check_blas(cublasLtMatmul(handle_.get(), plan.operation.get(), alphas[wide], operands.a, plan.a.get(), operands.b,
                              plan.b.get(), betas[wide], plan.problem.reads_c ? operands.c : operands.d, plan.c.get(),
                              operands.d, plan.d.get(), &algorithm, workspace, bytes, context_.stream().native()),
               "cublasLtMatmul");
  }

  template <class = void>
  detail::BlasPlan& plan_of(BlasProblem const& problem, BlasOperands const& operands, void* scratch) {
    for (detail::BlasPlan& plan : plans_)
      if (plan.problem == problem) return plan;
    plans_.push_back(make_plan(problem, operands, scratch));
    return plans_.back();
  }

  template <class = void>
  detail::BlasPlan make_plan(BlasProblem const& problem, BlasOperands const& operands, void* scratch) {
    tutti::cuda::CurrentDevice const current(context_.stream().device());
    detail::BlasPlan plan;
    plan.problem = problem;
    bool const wide = problem.type == CUDA_R_64F;
    cublasComputeType_t const compute = wide                                          ? CUBLAS_COMPUTE_64F
                                        : options_.tf32 && problem.type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                      : CUBLAS_COMPUTE_32F;
    check_blas(cublasLtMatmulDescCreate(plan.operation.address(), compute, wide ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    cublasLtMatmulDesc_t const operation = plan.operation.get();
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA,
        static_cast<std::int32_t>(problem.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB,
        static_cast<std::int32_t>(problem.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::int32_t>(problem.epilogue));
    // The heuristic looks at where these two are.
    if (operands.bias != nullptr) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (operands.saved != nullptr) {
      set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.saved_stride);
      set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.saved);
    }
    make_layout(plan.a, problem.type, problem.a_transposed ? problem.k : problem.m,
                problem.a_transposed ? problem.m : problem.k, problem.a_stride, problem.batch, problem.a_batch);
    make_layout(plan.b, problem.type, problem.b_transposed ? problem.n : problem.k,
                problem.b_transposed ? problem.k : problem.n, problem.b_stride, problem.batch, problem.b_batch);
    make_layout(plan.c, problem.result, problem.m, problem.n, problem.c_stride, problem.batch, problem.c_batch);
    make_layout(plan.d, problem.result, problem.m, problem.n, problem.d_stride, problem.batch, problem.d_batch);

    detail::BlasOwner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
    check_blas(cublasLtMatmulPreferenceCreate(preference.address()), "cublasLtMatmulPreferenceCreate");
    auto const prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto const& value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(options_.workspace));
    // Parts of a sum added in place arrive in any order; those kept in the type of sums are added in theirs.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.alignment[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.alignment[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.alignment[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.alignment[3]);

    for (Preferred const& preferred : preferred_) {
      cublasLtMatmulHeuristicResult_t result{};
      if (preferred.problem == problem && preferred.choice.workspace <= options_.workspace &&
          cublasLtMatmulAlgoCheck(handle_.get(), operation, plan.a.get(), plan.b.get(), plan.c.get(), plan.d.get(),
                                  &preferred.choice.algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
          result.workspaceSize <= options_.workspace) {
        plan.possible = true;
        plan.choice = {preferred.choice.algorithm, result.workspaceSize};
        return plan;
      }
    }
    constexpr int most = 8;
    cublasLtMatmulHeuristicResult_t results[most];
    bool const tuned = tunes();
    int found = 0;
    cublasStatus_t const status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), operation, plan.a.get(), plan.b.get(), plan.c.get(),
                                       plan.d.get(), preference.get(), tuned ? most : 1, results, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) found = 0;
    else check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    int best = -1;
    for (int index = 0; index < found && best < 0; ++index)
      if (results[index].state == CUBLAS_STATUS_SUCCESS) best = index;
    if (best < 0) return plan;
    plan.possible = true;
    if (tuned && found > 1) best = fastest(plan, operands, results, found, best, scratch);
    plan.choice = {results[best].algo, results[best].workspaceSize};
    return plan;
  }

  /// Times every proposal; what it would write goes to scratch memory, so that operands stay as they are.
  template <class = void>
  int fastest(detail::BlasPlan& plan, BlasOperands operands, cublasLtMatmulHeuristicResult_t const* results, int found,
              int first, void* scratch) {
    BlasProblem const& problem = plan.problem;
    Room const room(problem);
    unsigned char* const memory = static_cast<unsigned char*>(scratch) + rounded(options_.workspace);
    operands.d = memory;
    if (room.saved != 0) operands.saved = memory + room.result;
    tutti::cuda::Stream const& stream = context_.stream();
    tutti::cuda::Event const start(stream.device(), tutti::cuda::Event::Timing::on),
        end(stream.device(), tutti::cuda::Event::Timing::on);
    int best = first;
    float least = std::numeric_limits<float>::infinity();
    for (int index = first; index < found; ++index) {
      if (results[index].state != CUBLAS_STATUS_SUCCESS) continue;
      constexpr int rounds = 3;
      for (int round = -1; round < rounds; ++round) {
        if (round == 0) start.record(stream);
        enqueue(plan, operands, 1, problem.reads_c ? 1 : 0, results[index].algo, scratch, results[index].workspaceSize);
      }
      end.record(stream);
      end.wait();
      float const time = milliseconds_between(start, end);
      if (time < least) least = time, best = index;
    }
    return best;
  }

  Context& context_;
  BlasOptions options_;
  detail::BlasOwner<cublasLtHandle_t, cublasLtDestroy> handle_;
  List<detail::BlasPlan> plans_;
  struct Preferred {
    BlasProblem problem;
    BlasChoice choice;
  };
  List<Preferred> preferred_;
};

}  // namespace tutti::kernel::cuda
