// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exports of libwasi_nn_backend.so; what they do is in tutti/wasi_nn.
#pragma GCC visibility push(default)
#include <tutti_wasi_nn_backend.h>
#pragma GCC visibility pop

#include <tutti/wasi_nn/session_interface.hpp>

namespace api = tutti::wasi_nn::session_interface;

static_assert(sizeof(tutti_wasi_nn_backend_tensor) == sizeof(api::Tensor));
static_assert(sizeof(tutti_wasi_nn_backend_parts) == sizeof(api::Parts) &&
              sizeof(tutti_wasi_nn_backend_part) == sizeof(api::Part));

namespace {

api::Tensor const* of(tutti_wasi_nn_backend_tensor* tensor) { return reinterpret_cast<api::Tensor const*>(tensor); }

}  // namespace

extern "C" {

int init_backend(void** context) { return api::init(context, nullptr, 0); }
int init_backend_with_config(void** context, char const* config, uint32_t size) {
  return api::init(context, config, size);
}
int deinit_backend(void* context) { return api::deinit(context); }
int load(void* context, tutti_wasi_nn_backend_parts* parts, int32_t encoding, int32_t target, uint32_t* graph) {
  return api::load(context, reinterpret_cast<api::Parts const*>(parts), encoding, target, graph);
}
int load_by_name(void* context, char const* name, uint32_t size, uint32_t* graph) {
  return api::load_by_name(context, name, size, nullptr, 0, graph);
}
int load_by_name_with_config(void* context, char const* name, uint32_t size, char const* config, uint32_t config_size,
                             uint32_t* graph) {
  return api::load_by_name(context, name, size, config, config_size, graph);
}
int init_execution_context(void* context, uint32_t, uint32_t* execution) {
  return api::init_execution_context(context, nullptr, execution);
}
int init_execution_context_with_session_id(void* context, char const* session, uint32_t* execution) {
  return api::init_execution_context(context, session, execution);
}
int close_execution_context(void* context, uint32_t execution) {
  return api::close_execution_context(context, execution);
}
int run_inference(void* context, uint32_t execution, uint32_t index, tutti_wasi_nn_backend_tensor* input,
                  uint8_t* answer, uint32_t* size, char const* config, uint32_t config_size) {
  return api::run_inference(context, execution, index, of(input), answer, size, config, config_size);
}
int set_input(void* context, uint32_t execution, uint32_t index, tutti_wasi_nn_backend_tensor* input) {
  return api::set_input(context, execution, index, of(input));
}
int compute(void* context, uint32_t execution) { return api::compute(context, execution); }
int get_output(void* context, uint32_t execution, uint32_t index, uint8_t* answer, uint32_t* size) {
  return api::get_output(context, execution, index, answer, size);
}

}  // extern "C"
