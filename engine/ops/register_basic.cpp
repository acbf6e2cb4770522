#include "engine/ops/attention.h"
#include "engine/ops/cached_attention.h"
#include "engine/ops/clip.h"
#include "engine/ops/einsum.h"
#include "engine/ops/elementwise_binary.h"
#include "engine/ops/elementwise_unary.h"
#include "engine/ops/fold.h"
#include "engine/ops/group_query_attention.h"
#include "engine/ops/integer_ref.h"
#include "engine/ops/linear_attention.h"
#include "engine/ops/linear_ref.h"
#include "engine/ops/ml.h"
#include "engine/ops/movement.h"
#include "engine/ops/norm.h"
#include "engine/ops/pool.h"
#include "engine/ops/random.h"
#include "engine/ops/recurrent.h"
#include "engine/ops/reduce.h"
#include "engine/ops/register_cpu.h"
#include "engine/ops/registry.h"
#include "engine/ops/resize.h"
#include "engine/ops/sampling.h"
#include "engine/ops/select.h"
#include "engine/ops/signal.h"
#include "engine/ops/softmax.h"
#include "engine/ops/strings.h"

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
