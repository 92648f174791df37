// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cpu/cross_entropy.hpp>

#include "kernel/cross_entropy_oracle.hpp"
#include "kernel/support.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>

using namespace tutti;
using namespace tutti::test;

namespace {

struct Case {
  std::int64_t rows, channels, vocabulary, padded;
  std::int32_t ignored;
  int ignored_in_four;
};

}  // namespace

TEST_CASE("Cross-entropy of given logits agrees with double precision, also in place") {
  std::vector<Case> const cases{{0, 0, 5, 0, -1, 0},    {1, 0, 1, 0, -1, 0},     {3, 0, 2, 0, -1, 0},
                                {2, 0, 17, 0, -100, 1}, {5, 0, 64, 0, 3, 1},     {4, 0, 1000, 0, -1, 4},
                                {7, 0, 1025, 0, -1, 1}, {1100, 0, 33, 0, -1, 1}, {3, 0, 5003, 0, -1, 0}};
  for (Case const& shape : cases)
    for (float spread : {3.0f, 200.0f}) {
      CAPTURE(shape.rows, shape.vocabulary, spread);
      std::int64_t const rows = shape.rows, vocabulary = shape.vocabulary;
      Random random(static_cast<std::uint64_t>(vocabulary));
      auto const z = random.floats(rows * vocabulary, spread, spread);
      auto const targets = random_targets(random, rows, vocabulary, shape.ignored, shape.ignored_in_four);
      LossOracle const oracle = loss_oracle({z.begin(), z.end()}, targets, vocabulary, shape.ignored, 0.5);
      for (bool in_place : {false, true})
        on_every_context(
            [&](exec::Context& context) {
              std::vector<float> out(length(rows * vocabulary + rows + 1), 3.0f);
              if (in_place) std::copy(z.begin(), z.end(), out.begin());
              kernel::cpu::cross_entropy(context, {.rows = rows,
                                                   .vocabulary = vocabulary,
                                                   .ignored = shape.ignored,
                                                   .scale = 0.5f,
                                                   .logits = in_place ? out.data() : z.data(),
                                                   .targets = targets.data(),
                                                   .loss = out.data() + rows * vocabulary + rows,
                                                   .row_losses = out.data() + rows * vocabulary,
                                                   .dlogits = out.data()});
              return out;
            },
            [&](std::vector<float> const& out) {
              double const u = tolerance<float>(spread > 100 ? 4000 : 100);
              require_close(out.data(), oracle.dlogits, u, 1, "dlogits");
              require_close(out.data() + rows * vocabulary, oracle.row_losses, u, 1, "row loss");
              require_close(out.data() + rows * vocabulary + rows, {oracle.loss}, u, 1, "loss");
            });
      kernel::cpu::cross_entropy(context_of(exec::best_isa(), 2), {.rows = rows,
                                                                   .vocabulary = vocabulary,
                                                                   .ignored = shape.ignored,
                                                                   .logits = z.data(),
                                                                   .targets = targets.data()});
    }
}

TEST_CASE("The fused head agrees with double precision: loss, gradients, padded classes, dx over x") {
  std::vector<Case> const cases{{0, 4, 5, 8, -1, 0},     {1, 1, 1, 1, -1, 0},           {3, 7, 5, 5, -1, 0},
                                {5, 16, 33, 40, -1, 1},  {2, 3, 10, 16, -1, 4},         {70, 24, 101, 104, -1, 1},
                                {9, 33, 257, 300, 7, 1}, {70, 5, 90'000, 90'001, -1, 1}};
  for (Case const& shape : cases) {
    auto const [rows, C, vocabulary, padded, ignored, ignored_in_four] = shape;
    CAPTURE(rows, C, vocabulary, padded);
    Random random(static_cast<std::uint64_t>(vocabulary));
    auto const x = random.floats(rows * C, 2), weight = random.floats(padded * C);
    auto const targets = random_targets(random, rows, vocabulary, ignored, ignored_in_four);
    std::vector<double> z, dx(length(rows * C)), dweight(length(padded * C));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t j = 0; j < vocabulary; ++j) {
        double sum = 0;
        for (std::int64_t c = 0; c < C; ++c) sum += double{x[length(row * C + c)]} * double{weight[length(j * C + c)]};
        z.push_back(sum);
      }
    LossOracle const oracle = loss_oracle(z, targets, vocabulary, ignored, 2);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t j = 0; j < vocabulary; ++j)
        for (std::int64_t c = 0; c < C; ++c) {
          double const d = oracle.dlogits[length(row * vocabulary + j)];
          dx[length(row * C + c)] += d * double{weight[length(j * C + c)]};
          dweight[length(j * C + c)] += d * double{x[length(row * C + c)]};
        }
    enum { separate, over_x, loss_only, dx_only, dweight_only };
    for (int form : {separate, over_x, loss_only, dx_only, dweight_only}) {
      if (vocabulary > 1000 && form != over_x) continue;
      CAPTURE(form);
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out(length(rows * C + padded * C + rows + 1), 3.0f);
            std::vector<float> workspace(length(kernel::linear_cross_entropy_workspace(rows, padded)));
            float* const losses = out.data() + (rows + padded) * C;
            kernel::LinearCrossEntropy args{.rows = rows,
                                            .channels = C,
                                            .vocabulary = vocabulary,
                                            .padded_vocabulary = padded,
                                            .ignored = ignored,
                                            .scale = 2.0f,
                                            .x = x.data(),
                                            .weight = weight.data(),
                                            .targets = targets.data(),
                                            .loss = losses + rows,
                                            .row_losses = losses,
                                            .dx = out.data(),
                                            .dweight = out.data() + rows * C,
                                            .workspace = workspace.data()};
            if (form == over_x) {
              std::copy(x.begin(), x.end(), out.begin());
              args.x = out.data();
            }
            if (form == loss_only || form == dweight_only) args.dx = nullptr;
            if (form == loss_only || form == dx_only) args.dweight = nullptr;
            kernel::cpu::linear_cross_entropy(context, args);
            return out;
          },
          [&](std::vector<float> const& out) {
            std::vector<double> const untouched_x(length(rows * C), 3.0), untouched_weight(length(padded * C), 3.0);
            bool const with_dx = form != loss_only && form != dweight_only,
                       with_dweight = form != loss_only && form != dx_only;
            double const u = tolerance<float>(C + 16) * 4;
            require_close(out.data(), with_dx ? dx : untouched_x, u, 1, "dx");
            require_close(out.data() + rows * C, with_dweight ? dweight : untouched_weight, u, 1, "dweight");
            require_close(out.data() + (rows + padded) * C, oracle.row_losses, u, 1, "row loss");
            require_close(out.data() + (rows + padded) * C + rows, {oracle.loss}, u, 1, "loss");
          });
    }
  }
}

TEST_CASE("A target outside the classes is named before anything is written") {
  auto& context = context_of(exec::best_isa(), 2);
  std::vector<float> const x(3 * 4, 1.0f), weight(8 * 4, 1.0f);
  std::vector<float> out(32, -1.0f), workspace(64);
  for (std::int32_t bad : {6, -2}) {
    std::vector<std::int32_t> const targets{0, -1, bad};
    std::string const text =
        "target " + std::to_string(bad) + " of row 2 is outside the 6 classes. Mark rows that do not count with -1";
    kernel::LinearCrossEntropy const head{.rows = 3,
                                          .channels = 4,
                                          .vocabulary = 6,
                                          .padded_vocabulary = 8,
                                          .x = x.data(),
                                          .weight = weight.data(),
                                          .targets = targets.data(),
                                          .loss = out.data(),
                                          .dx = out.data(),
                                          .dweight = out.data(),
                                          .workspace = workspace.data()};
    REQUIRE_ERROR(kernel::cpu::linear_cross_entropy(context, head), ErrorKind::out_of_range, text);
    kernel::CrossEntropy const plain{.rows = 3,
                                     .vocabulary = 6,
                                     .logits = weight.data(),
                                     .targets = targets.data(),
                                     .loss = out.data(),
                                     .dlogits = out.data()};
    REQUIRE_ERROR(kernel::cpu::cross_entropy(context, plain), ErrorKind::out_of_range, text);
  }
  REQUIRE(out == std::vector<float>(32, -1.0f));
}

TEST_CASE("The fused head of 4096 rows takes less than 64 MB beside its operands, on two threads") {
  for (std::int64_t vocabulary : {256, 32000, 50304, 128256, 200064})
    for (std::int64_t channels : {768, 1600}) {
      CAPTURE(vocabulary, channels);
      std::int64_t const chunk = kernel::linear_cross_entropy_chunk(4096, vocabulary);
      CHECK(chunk >= std::min<std::int64_t>(4096, 64));
      std::int64_t packed = 0;  // by one thread, for logits, dx and dweight
      for (auto const [m, n, k] : std::initializer_list<std::array<std::int64_t, 3>>{
               {chunk, vocabulary, channels}, {chunk, channels, vocabulary}, {vocabulary, channels, chunk}}) {
        kernel::Gemm g;
        float c = 0;
        g.m = m, g.n = n, g.k = k, g.c = &c;
        packed = std::max(packed, kernel::cpu::gemm_scratch(g, m, n));
      }
      CHECK(4 * (kernel::linear_cross_entropy_workspace(4096, vocabulary) + 2 * packed) < 64'000'000);
    }
}
