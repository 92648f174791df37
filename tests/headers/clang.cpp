// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What the other compiler reads (clang.py): the library whole, with the bodies that a program compiles once.

#include <tutti/source.hpp>

#include <tutti/infer.hpp>
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>
#if __has_include(<mpi.h>)
#include <tutti/backend/mpi.hpp>
#endif

// It evaluates constant expressions by rules of its own, as to when templates are instantiated.
static_assert(
    [] {
      using namespace tutti;
      nn::Gpt2Config const tiny{
          .layers = 2, .heads = 2, .channels = 8, .vocabulary = 11, .padded_vocabulary = 16, .max_tokens = 5};
      return graph::trace(nn::make_parameters(tiny),
                          [](graph::Builder& builder, nn::Gpt2 const& model) {
                            graph::Var const tokens = builder.input("tokens", DType::int32, {2, 4});
                            graph::Var const targets = builder.input("targets", DType::int32, {2, 4});
                            builder.output("loss", nn::Gpt2Loss{}(model, tokens, targets));
                          })
          .parameters.size();
    }() == 16,
    "GPT-2 can be traced in a constant expression");
