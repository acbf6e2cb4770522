#include "engine/ops/axis/norm.h"
#include "engine/ops/axis/reduce.h"
#include "engine/ops/axis/signal.h"
#include "engine/ops/axis/softmax.h"
#include "engine/ops/elementwise/clip.h"
#include "engine/ops/elementwise/elementwise_binary.h"
#include "engine/ops/elementwise/elementwise_unary.h"
#include "engine/ops/elementwise/random.h"
#include "engine/ops/features/ml.h"
#include "engine/ops/features/strings.h"
#include "engine/ops/images/fold.h"
#include "engine/ops/images/pool.h"
#include "engine/ops/images/resize.h"
#include "engine/ops/images/sampling.h"
#include "engine/ops/integer/integer_ref.h"
#include "engine/ops/matmul/einsum.h"
#include "engine/ops/matmul/linear_ref.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/movement/select.h"
#include "engine/ops/register_cpu.h"
#include "engine/ops/registry.h"
#include "engine/ops/sequence/attention.h"
#include "engine/ops/sequence/cached_attention.h"
#include "engine/ops/sequence/group_query_attention.h"
#include "engine/ops/sequence/linear_attention.h"
#include "engine/ops/sequence/recurrent.h"

namespace pare {

void register_basic(Registry& registry) {
  add_elementwise_unary_kernels(registry);
  add_elementwise_unary_reference(registry);
  add_elementwise_binary_kernels(registry);
  add_elementwise_binary_reference(registry);
  add_movement_kernels(registry);
  add_pad_kernels(registry);
  add_movement_references(registry);
  add_gather_kernels(registry);
  add_cast_kernels(registry);
  add_shape_kernels(registry);
  add_select_kernels(registry);
  add_clip_kernels(registry);
  add_softmax_kernels(registry);
  add_norm_kernels(registry);
  add_norm_references(registry);
  add_reduce_kernels(registry);
  add_reduce_references(registry);
  add_axis_references(registry);
  add_pool_kernels(registry);
  add_pool_references(registry);
  add_linear_references(registry);
  registry.add(resize::rows_kernel());
  registry.add(resize::reference_kernel());
  add_sampling_references(registry);
  add_region_references(registry);
  add_fold_references(registry);
  add_signal_references(registry);
  add_einsum_kernels(registry);
  add_attention_kernels(registry);
  add_cached_attention_kernels(registry);
  add_rotary_kernels(registry);
  add_attention_references(registry);
  add_group_query_attention(registry);
  add_linear_attention_references(registry);
  add_recurrent_kernels(registry);
  add_recurrent_references(registry);
  add_integer_kernels(registry);
  add_integer_references(registry);
  add_random_references(registry);
  add_string_references(registry);
  add_string_moves(registry);
  add_tfidf_reference(registry);
  add_ml_references(registry);
  add_tree_references(registry);
}

}  // namespace pare
