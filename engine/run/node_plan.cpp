#include "engine/run/node_plan.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {
namespace {

// A shape seen before costs nothing again, as long as what was prepared for all the shapes stays small: a
// model fed with ever new shapes must not keep packed weights for each. Most kernels share them
// (Kernel::share).
constexpr std::size_t kMaxVariants = 256;
constexpr std::size_t kMinVariants = 4;
constexpr std::int64_t kMaxPreparedBytes = std::int64_t{64} << 20;

TensorView view_of(const std::vector<Slot>& slots, ValueId id) {
  return id == ValueId::kNone ? TensorView{} : slots[static_cast<std::size_t>(id)].view;
}

}  // namespace

std::string NodePlan::kernel() const {
  return variants_.empty() ? std::string() : std::string(variants_.front().kernel->name);
}

std::size_t NodePlan::kept() const {
  if (variants_.empty() || variants_.front().prepared == nullptr ||
      variants_.front().kernel->share != PreparedShare::kNothing)
    return kMaxVariants;
  std::int64_t bytes = 1;  // a packed copy of the constants, about
  for (const ValueId in : node_.in)
    if (graph_.is_constant(in)) bytes += graph_.value(in).constant.bytes();
  return std::clamp(static_cast<std::size_t>(kMaxPreparedBytes / bytes), kMinVariants, kMaxVariants);
}

Variant NodePlan::make(const std::vector<Slot>& slots, std::vector<std::int64_t> key,
                       RunContext& context) const {
  Variant v;
  v.key = std::move(key);
  for (std::size_t i = 0; i < node_.in.size(); ++i) {
    v.in.push_back(view_of(slots, node_.in[i]));
    if (node_.in[i] != ValueId::kNone && !v.in[i].present())
      fail(ErrorCode::kBadFile, "input {} is no tensor: a sequence, or an optional without a value", i);
  }
  v.outputs = infer_node(graph_, node_, v.in, &v.reads_values);
  PARE_ASSERT(v.outputs.size() == node_.out.size());
  for (std::size_t i = 0; i < node_.out.size(); ++i)
    v.out.push_back(node_.out[i] == ValueId::kNone
                        ? TensorView{}
                        : TensorView{v.outputs[i].dtype, v.outputs[i].dims, nullptr});
  // Choice and preparation may look at constants only.
  for (std::size_t i = 0; i < node_.in.size(); ++i)
    if (node_.in[i] == ValueId::kNone || !graph_.is_constant(node_.in[i])) v.in[i].data = nullptr;
  OpCall call{&node_, v.in, v.out, context.options.pool, &context.scratch, nullptr, nullptr};
  call.seed = context.options.seed;
  v.kernel = &cpu_registry().pick(call, Backend::kCpu, context.options.only_invariant);
  if (v.kernel->prepare != nullptr) {
    const auto other = std::find_if(variants_.begin(), variants_.end(), [&](const Variant& seen) {
      return seen.kernel == v.kernel &&
             std::equal(seen.in.begin(), seen.in.end(), v.in.begin(), v.in.end(),
                        [](const TensorView& a, const TensorView& b) { return a.dtype == b.dtype; });
    });
    const bool shares = other != variants_.end() && v.kernel->share != PreparedShare::kNothing;
    if (shares && v.kernel->share == PreparedShare::kAll) {
      v.prepared = other->prepared;
    } else {
      if (shares) call.prepared = other->prepared.get();
      v.prepared = v.kernel->prepare(call);
    }
  }
  if (v.kernel->alias_offset != nullptr) v.alias_offset = v.kernel->alias_offset(call);
  return v;
}

Variant& NodePlan::variant_for(const std::vector<Slot>& slots, RunContext& context) {
  key_.clear();
  for (const ValueId in : node_.in) {
    if (in == ValueId::kNone) continue;
    const TensorView& view = slots[static_cast<std::size_t>(in)].view;
    key_.push_back(static_cast<std::int64_t>(view.dtype) << 32 | static_cast<std::int64_t>(view.dims.size()));
    key_.insert(key_.end(), view.dims.begin(), view.dims.end());
  }
  for (std::size_t i = 0; i < variants_.size(); ++i) {
    Variant& v = variants_[i];
    if (v.key != key_) continue;
    if (v.reads_values) {
      std::vector<TensorView> in;
      for (const ValueId id : node_.in) in.push_back(view_of(slots, id));
      bool read = false;
      const std::vector<OutputType> outputs = infer_node(graph_, node_, in, &read);
      bool same = true;
      for (std::size_t k = 0; k < outputs.size(); ++k) same = same && outputs[k].dims == v.outputs[k].dims;
      if (!same) continue;
    }
    if (i != 0)
      std::rotate(variants_.begin(), variants_.begin() + static_cast<std::ptrdiff_t>(i),
                  variants_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return variants_.front();
  }
  Variant fresh = make(slots, key_, context);
  variants_.insert(variants_.begin(), std::move(fresh));
  const std::size_t most = kept();
  if (variants_.size() > most) variants_.resize(most);
  return variants_.front();
}

}  // namespace pare
