// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/linear_cross_entropy.hpp>

#include "cuda/support.hpp"
#include "kernel/support.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace tutti;
using std::int64_t;
using test::OnDevice;

template <class T>
void check(int64_t rows, int64_t channels, int64_t vocabulary, int64_t padded, int64_t chunk, bool in_place) {
  INFO(rows << " rows of " << channels << ", " << vocabulary << " classes padded to " << padded << ", " << chunk
            << " rows at once, " << sizeof(T) << " bytes" << (in_place ? ", dx in x" : ""));
  constexpr bool narrow = sizeof(T) == 2;
  kernel::cuda::Context& context = test::cuda_context();
  kernel::cuda::Blas blas(context, {.workspace = 8192});
  test::Random random(static_cast<std::uint64_t>(rows * 37 + vocabulary));
  std::vector<float> const drawn_x = random.floats(rows * channels), drawn_weight = random.floats(padded * channels);
  std::vector<T> const x(drawn_x.begin(), drawn_x.end()), weight(drawn_weight.begin(), drawn_weight.end());
  std::vector<std::int32_t> targets(test::length(rows));
  for (auto& target : targets) target = static_cast<std::int32_t>(random.below(vocabulary));
  if (rows > 2) targets[1] = -1;
  float const poison = std::numeric_limits<float>::quiet_NaN(), scale = 2;
  std::vector<double> losses(test::length(rows)), dx(test::length(rows * channels)),
      dweight(test::length(padded * channels));
  int64_t valid = 0;
  for (std::int32_t target : targets) valid += target >= 0;
  double total = 0, largest_dx = 0, largest_dweight = 0;
  for (int64_t r = 0; r < rows; ++r) {
    std::int32_t const target = targets[test::length(r)];
    if (target < 0) continue;
    std::vector<double> z(test::length(vocabulary));
    double top = -1e300, sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) {
      for (int64_t c = 0; c < channels; ++c)
        z[test::length(v)] +=
            double(float(x[test::length(r * channels + c)])) * double(float(weight[test::length(v * channels + c)]));
      top = std::max(top, z[test::length(v)]);
    }
    for (double const value : z) sum += std::exp(value - top);
    total += losses[test::length(r)] = top + std::log(sum) - z[test::length(target)];
    for (int64_t v = 0; v < vocabulary; ++v) {
      double const slope = double(scale) * (std::exp(z[test::length(v)] - top) / sum - (v == target)) / double(valid);
      for (int64_t c = 0; c < channels; ++c) {
        dx[test::length(r * channels + c)] += slope * double(float(weight[test::length(v * channels + c)]));
        dweight[test::length(v * channels + c)] += slope * double(float(x[test::length(r * channels + c)]));
      }
    }
  }
  for (double const value : dx) largest_dx = std::max(largest_dx, std::abs(value));
  for (double const value : dweight) largest_dweight = std::max(largest_dweight, std::abs(value));

  OnDevice<T> const on_x(x), on_weight(weight), on_dx(std::vector<T>(x.size(), T(poison)));
  OnDevice<std::int32_t> const on_targets(targets);
  OnDevice<float> const loss(std::vector<float>(1, poison)), row_losses(std::vector<float>(test::length(rows), poison)),
      on_dweight(std::vector<float>(dweight.size(), poison));
  OnDevice<unsigned char> const workspace(
      kernel::linear_cross_entropy_device_workspace(rows, padded, chunk, sizeof(T)));
  kernel::LinearCrossEntropyOf<T> args;
  args.rows = rows, args.channels = channels, args.vocabulary = vocabulary, args.padded_vocabulary = padded;
  args.scale = scale, args.x = on_x.data(), args.weight = on_weight.data(), args.targets = on_targets.data();
  args.loss = loss.data(), args.workspace = reinterpret_cast<float*>(workspace.data());
  kernel::cuda::linear_cross_entropy(blas, args, chunk);  // evaluation: the loss alone
  double const exact = valid > 0 ? total / double(valid) : 0;
  double const magnitude = 1 + std::sqrt(static_cast<double>(channels));
  // Logits are kept in T.
  double const tolerance = test::tolerance<float>(channels + vocabulary) + (narrow ? 0x1p-8 : 0);
  float const alone = loss.read()[0];
  CHECK(test::close(double(alone), exact, tolerance, magnitude));
  args.row_losses = row_losses.data(), args.dweight = on_dweight.data();
  args.dx = in_place ? on_x.data() : on_dx.data();
  kernel::cuda::linear_cross_entropy(blas, args, chunk);
  CHECK(loss.read()[0] == alone);
  test::require_close(row_losses.read().data(), losses, tolerance, magnitude, "row_losses");
  std::vector<T> const result = (in_place ? on_x : on_dx).read();
  std::vector<float> const wide(result.begin(), result.end());
  // Each dz is a rounded softmax of rounded logits.
  double const slope = test::tolerance<float>(rows + vocabulary) * magnitude + (narrow ? 4 * magnitude * 0x1p-8 : 0);
  test::require_close(wide.data(), dx, slope, std::max(largest_dx, 1e-3), "dx");
  test::require_close(on_dweight.read().data(), dweight, slope, std::max(largest_dweight, 1e-3), "dweight");
}

}  // namespace

TEST_CASE("the head's loss and gradients on devices equal the naive loops, in chunks and at once") {
  for (int64_t chunk : {1, 4, 9, 20}) {
    check<float>(9, 16, 33, 40, chunk, false);
    check<bfloat16>(9, 16, 33, 40, chunk, false);
  }
  check<bfloat16>(20, 24, 301, 304, 8, true);
  check<float>(7, 8, 17, 17, 3, true);
  check<float>(1, 8, 1, 8, 1, false);
}

TEST_CASE("the head of no rows has loss zero and gradients of zero, and chunks of nothing are refused") {
  check<float>(0, 8, 5, 8, 1, false);
  kernel::cuda::Blas blas(test::cuda_context(), {.workspace = 8192});
  REQUIRE_ERROR(kernel::cuda::linear_cross_entropy(blas, kernel::LinearCrossEntropyOf<float>{.rows = 1}, 0),
                ErrorKind::invalid_argument, "chunks of 0 rows");
}

TEST_CASE("chunks of the head on a device are multiples of 128 rows below 1 GiB") {
  CHECK(kernel::linear_cross_entropy_device_chunk(1 << 20, 50304, 2) == 10624);
  CHECK(kernel::linear_cross_entropy_device_chunk(100, 50304, 2) == 100);
  CHECK(kernel::linear_cross_entropy_device_chunk(1 << 20, 1 << 28, 4) == 128);
}
