// Attention by matrix products: blocks of query rows against packed keys, softmax, times packed values.
// float16 and bfloat16 in float32, rounded once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/ops/axis/softmax.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "engine/ops/registry.h"
#include "engine/ops/sequence/attention.h"
#include "engine/ops/support.h"
#include "engine/ops/thread_slots.h"

namespace pare {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// All keys, or all values: [batch, heads, seq, size] with strides, in float32.
struct Rows {
  std::vector<float> decoded, joined;
  const float* data = nullptr;
  std::int64_t heads = 0, seq = 0, size = 0, batch_step = 0, head_step = 0, row_step = 0;

  void set(const TensorView& view, std::int64_t count) {
    data = all_floats(view, decoded);
    const bool flat = view.dims.size() == 3;
    heads = flat ? count : view.dims[1];
    seq = view.dims[flat ? 1 : 2];
    size = flat ? view.dims[2] / count : view.dims[3];
    batch_step = heads * seq * size;
    head_step = flat ? size : seq * size;
    row_step = flat ? heads * size : size;
  }

  // Puts `past` [batch, heads, before, size] in front.
  void prepend(const TensorView& past, std::int64_t batch, ThreadPool& pool) {
    std::vector<float> room;
    const float* front = all_floats(past, room);
    const std::int64_t before = past.dims[2], total = before + seq;
    joined.resize(static_cast<std::size_t>(batch * heads * total * size));
    pool.parallel_for(batch * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        float* to = joined.data() + i * total * size;
        std::copy_n(front + i * before * size, before * size, to);
        for (std::int64_t s = 0; s < seq; ++s)
          std::copy_n(data + i / heads * batch_step + i % heads * head_step + s * row_step, size,
                      to + (before + s) * size);
      }
    });
    data = joined.data();
    seq = total;
    batch_step = heads * seq * size;
    head_step = seq * size;
    row_step = size;
  }

  const float* head(std::int64_t b, std::int64_t h) const { return data + b * batch_step + h * head_step; }
};

class Attention {
 public:
  explicit Attention(const OpCall& call) : call_(call), shape_(check_attention(call)) {
    q_.set(call.in[0], call.node->attr("q_num_heads", std::int64_t{1}));
    k_.set(call.in[1], call.node->attr("kv_num_heads", std::int64_t{1}));
    v_.set(call.in[2], call.node->attr("kv_num_heads", std::int64_t{1}));
    if (call.has(4)) {
      k_.prepend(call.in[4], shape_.batch, *call.pool);
      v_.prepend(call.in[5], shape_.batch, *call.pool);
    }
    if (call.has(3) && call.in[3].dtype != DType::kBool) mask_ = all_floats(call.in[3], mask_room_);
    if (call.has(6)) valid_ = ints_of(call.in[6]);
    scale_ = call.node->has_attr("scale") ? call.node->attr("scale", 0.0F)
                                          : static_cast<float>(1 / std::sqrt(static_cast<double>(q_.size)));
    cap_ = call.node->attr("softcap", 0.0F);
    mode_ = call.node->attr("qk_matmul_output_mode", std::int64_t{0});
    causal_ = call.node->attr("is_causal", std::int64_t{0}) != 0;
  }

  void run() {
    const std::int64_t total = shape_.total, group = q_.heads / k_.heads, rows = group * q_.seq;
    y_ = output(0, y_room_);
    scores_ = wants(3) ? output(3, scores_room_) : nullptr;
    // A unit: rows of queries that share one key head, so that its keys are packed once.
    const std::int64_t pairs = shape_.batch * k_.heads, threads = call_.pool->threads();
    const std::int64_t parts = std::clamp<std::int64_t>(pairs >= threads ? 1 : (threads + pairs - 1) / pairs,
                                                        1, std::max<std::int64_t>(1, rows / 8));
    const std::int64_t block = std::clamp<std::int64_t>((1 << 16) / std::max<std::int64_t>(1, total), 1, 96);
    const std::int64_t keys = round_up(packed_b_floats(k_.size, total)),
                       values = round_up(packed_b_floats(total, v_.size)),
                       floats = keys + values + round_up(block * total);
    float* scratch = call_.scratch->take<float>(floats * threads);
    ThreadSlots slots(*call_.pool);
    call_.pool->parallel_for(pairs * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      const ThreadSlots::Slot slot(slots);
      Room room;
      room.keys = scratch + slot.index() * floats;
      room.values = room.keys + keys;
      room.scores = room.values + values;
      std::int64_t packed = -1;
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t pair = unit / parts, part = unit % parts;
        const std::int64_t b = pair / k_.heads, kv = pair % k_.heads;
        if (packed != pair) {
          pack_b(k_.head(b, kv), 1, k_.row_step, k_.size, total, room.keys);
          pack_b(v_.head(b, kv), v_.row_step, 1, total, v_.size, room.values);
        }
        packed = pair;
        for (std::int64_t r = rows * part / parts; r < rows * (part + 1) / parts;) {
          const std::int64_t h = kv * group + r / q_.seq, s = r % q_.seq;
          const std::int64_t count = std::min({block, q_.seq - s, rows * (part + 1) / parts - r});
          query_rows(b, h, s, count, room);
          r += count;
        }
      }
    });
    finish(0, y_);
    if (scores_ != nullptr) finish(3, scores_);
    store_present(1, k_);
    store_present(2, v_);
  }

 private:
  struct Room {
    float *keys, *values, *scores;
  };

  static std::int64_t round_up(std::int64_t n) { return (n + 15) / 16 * 16; }
  bool wants(std::size_t i) const { return i < call_.out.size() && call_.out[i].present(); }

  float* output(std::size_t i, std::vector<float>& room) const {
    const TensorView& out = call_.out[i];
    if (out.dtype == DType::kF32) return out.mut<float>();
    room.resize(static_cast<std::size_t>(out.size()));
    return room.data();
  }
  void finish(std::size_t i, const float* values) const {
    write_floats(call_.out[i], 0, call_.out[i].size(), values);
  }
  void store_present(std::size_t i, const Rows& rows) const {
    if (!wants(i)) return;
    std::vector<float> room;
    float* to = output(i, room);
    for (std::int64_t p = 0; p < shape_.batch * rows.heads * rows.seq; ++p) {
      const std::int64_t b = p / rows.seq / rows.heads, h = p / rows.seq % rows.heads, s = p % rows.seq;
      std::copy_n(rows.head(b, h) + s * rows.row_step, rows.size, to + p * rows.size);
    }
    finish(i, to);
  }

  // How many keys the rows up to query s look at, in whole panels: with causal attention those behind it add
  // nothing, neither to a sum of exponentials nor to a product. All where somebody wants the scores.
  std::int64_t seen_by(std::int64_t s) const {
    if (!causal_ || scores_ != nullptr) return shape_.total;
    return std::min(shape_.total, gemm_panels(shape_.past + s + 1) * gemm_panel());
  }

  void query_rows(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t count,
                  const Room& room) const {
    const std::int64_t total = seen_by(s + count - 1);
    const auto multiply = PARE_SIMD_PICK(gemm_f32_task);
    GemmTask task;
    task.a = q_.head(b, h) + s * q_.row_step;
    task.lda = q_.row_step;
    task.b = room.keys;
    task.m = count;
    task.k = q_.size;
    task.n = total;
    task.c = room.scores;
    task.ldc = total;
    task.alpha = scale_;
    task.panel_end = gemm_panels(total);
    multiply(task);
    for (std::int64_t r = 0; r < count; ++r) {
      float* row = room.scores + r * total;
      if (cap_ > 0)
        for (std::int64_t j = 0; j < total; ++j) row[j] = cap_ * std::tanh(row[j] / cap_);
      if (mode_ < 2) keep(b, h, s + r, row);
      mask_row(b, h, s + r, total, row);
      if (mode_ == 2) keep(b, h, s + r, row);
    }
    PARE_SIMD_PICK(softmax_rows)(room.scores, room.scores, count, total, false);
    for (std::int64_t r = 0; mode_ == 3 && r < count; ++r) keep(b, h, s + r, room.scores + r * total);
    const bool flat = call_.in[0].dims.size() == 3;
    GemmTask weigh;
    weigh.a = room.scores;
    weigh.lda = total;
    weigh.m = count;
    weigh.k = total;
    weigh.n = v_.size;
    weigh.c = y_ + (flat ? (b * q_.seq + s) * q_.heads + h : (b * q_.heads + h) * q_.seq + s) * v_.size;
    weigh.ldc = flat ? q_.heads * v_.size : v_.size;
    for (std::int64_t panel = 0; panel < gemm_panels(v_.size); ++panel) {
      // The panel begins where all keys count, of which only the first are walked.
      weigh.b = room.values + panel * gemm_panel() * (shape_.total - total);
      weigh.panel_begin = panel;
      weigh.panel_end = panel + 1;
      multiply(weigh);
    }
  }

  void keep(std::int64_t b, std::int64_t h, std::int64_t s, const float* row) const {
    if (scores_ != nullptr)
      std::copy_n(row, shape_.total, scores_ + ((b * q_.heads + h) * q_.seq + s) * shape_.total);
  }

  // Keys that nothing hides by their place: causal, valid, and inside of the mask. The others are masked.
  void mask_row(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t total, float* row) const {
    std::int64_t seen = total;
    if (causal_) seen = std::min(seen, shape_.past + s + 1);
    if (!valid_.empty()) seen = std::clamp<std::int64_t>(valid_[static_cast<std::size_t>(b)], 0, seen);
    if (call_.has(3)) {
      const Dims& dims = call_.in[3].dims;
      const std::int64_t place[] = {b, h, s};
      std::int64_t index = 0;
      for (std::size_t i = 0; i + 1 < dims.size(); ++i)
        index = index * dims[i] + (dims[i] == 1 ? 0 : place[4 - dims.size() + i]);
      index *= dims.back();
      seen = std::min(seen, dims.back());
      if (mask_ != nullptr)
        for (std::int64_t j = 0; j < seen; ++j) row[j] += mask_[index + j];
      else
        for (std::int64_t j = 0; j < seen; ++j)
          if (call_.in[3].as<std::uint8_t>()[index + j] == 0) row[j] += kMasked;
    }
    for (std::int64_t j = seen; j < total; ++j) row[j] += kMasked;  // NaN stays
  }

  const OpCall& call_;
  AttentionShape shape_;
  Rows q_, k_, v_;
  std::vector<float> mask_room_, y_room_, scores_room_;
  const float* mask_ = nullptr;
  float *y_ = nullptr, *scores_ = nullptr;
  std::vector<std::int64_t> valid_;
  std::int64_t mode_ = 0;
  float scale_ = 1, cap_ = 0;
  bool causal_ = false;
};

std::string why_not(const OpCall& call) {
  for (const int i : {0, 1, 2, 4, 5})
    if (call.has(i) && !is_small_float(call.input(i).dtype)) return "none of float32, float16, bfloat16";
  if (call.has(3) && call.input(3).dtype != DType::kBool && !is_small_float(call.input(3).dtype))
    return "a mask of none of bool, float32, float16, bfloat16";
  if (call.has(4) != call.has(5)) return "one of past_key and past_value is missing";
  if (call.out[0].size() == 0 || call.in[1].size() == 0 || call.in[2].size() == 0) return "no elements";
  return {};
}

void run(const OpCall& call) { Attention(call).run(); }

}  // namespace

void add_attention_kernels(Registry& registry) {
  registry.add({"", "Attention", Backend::kCpu, "Attention/cpu:packed", why_not, nullptr, run});
}

}  // namespace pare
