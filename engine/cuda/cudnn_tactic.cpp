// cuDNN through its backend interface: one operation graph a layer (the convolution or product, then scale,
// bias, residual, activation and requantization as pointwise nodes on virtual tensors), of which its engines
// make one kernel. A tactic's name holds the engine and its knobs, so a build from the cache asks no
// heuristic.
#include <cstring>

#include "engine/cuda/device.h"
#include "engine/cuda/linear_code.h"
#include "engine/cuda/tactic.h"

namespace pare::cuda {
namespace {

cudnnHandle_t handle() {
  static const cudnnHandle_t h = [] {
    cudnnHandle_t made = nullptr;
    check(cudnn().cudnnCreate(&made), "cudnnCreate");
    return made;
  }();
  return h;
}

// A backend descriptor. Setting and finalizing report failure by `ok`, since an engine that declines is no
// error.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check(cudnn().cudnnBackendCreateDescriptor(type, &d_), "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() {
    if (d_ != nullptr) cudnn().cudnnBackendDestroyDescriptor(d_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Descriptor& set(cudnnBackendAttributeName_t key, cudnnBackendAttributeType_t type, std::int64_t count,
                  const void* values) {
    if (cudnn().cudnnBackendSetAttribute(d_, key, type, count, values) != CUDNN_STATUS_SUCCESS) ok_ = false;
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t key, const Descriptor& other) {
    return set(key, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.d_);
  }
  Descriptor& set(cudnnBackendAttributeName_t key, std::int64_t v) {
    return set(key, CUDNN_TYPE_INT64, 1, &v);
  }
  Descriptor& set(cudnnBackendAttributeName_t key, const Dims& v) {
    return set(key, CUDNN_TYPE_INT64, static_cast<std::int64_t>(v.size()), v.data());
  }
  bool finish() {
    if (ok_) ok_ = cudnn().cudnnBackendFinalize(d_) == CUDNN_STATUS_SUCCESS;
    return ok_;
  }
  bool ok() const { return ok_; }
  cudnnBackendDescriptor_t get() const { return d_; }

 private:
  cudnnBackendDescriptor_t d_ = nullptr;
  bool ok_ = true;
};
using Shared = std::shared_ptr<Descriptor>;

cudnnDataType_t type_code(DType type) {
  switch (type) {
    case DType::kF16:
      return CUDNN_DATA_HALF;
    case DType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    case DType::kI8:
      return CUDNN_DATA_INT8;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

enum Id : std::int64_t {
  kX = 1,
  kW,
  kBias,
  kResidual,
  kScale,
  kY,
  kResidualFactor,
  kOutputFactor,
  kFirstVirtual = 100
};

// The operation graph of one layer.
class LayerGraph {
 public:
  LayerGraph(const EnginePlan& plan, const PlanLayer& layer) : plan_(plan), layer_(layer) {}

  bool build(std::string& why_not) {
    const bool integer = type_of(plan_, layer_.in[0]) == DType::kI8;
    const cudnnDataType_t sums = integer ? CUDNN_DATA_INT32 : CUDNN_DATA_FLOAT;
    Shared at = linear(sums);
    const Epilogue& e = layer_.epilogue;
    const DType out = type_of(plan_, layer_.out[0]);
    std::vector<std::function<void(Shared)>> steps;
    if (layer_.in[4].present())
      pending(CUDNN_POINTWISE_MUL, operand(4, kScale, per_channel(), per_channel_strides()));
    if (layer_.in[2].present())
      pending(CUDNN_POINTWISE_ADD, operand(2, kBias, per_channel(), per_channel_strides()));
    if (layer_.in[3].present()) {
      Shared residual = operand(3, kResidual, y_dims_, y_strides_);
      if (e.r_scale != 1)
        residual = pointwise(CUDNN_POINTWISE_MUL, residual, factor(kResidualFactor), nullptr, {});
      pending(CUDNN_POINTWISE_ADD, residual);
    }
    if (!e.identity() && !activation(e.act, why_not)) return false;
    if (bits(out) == 8) pending(CUDNN_POINTWISE_MUL, factor(kOutputFactor));
    if (todo_.empty() && integer) {
      why_not = "sums of integers without a scale";
      return false;
    }
    if (todo_.empty()) {  // the product itself writes y
      ops_.clear();
      at = linear(sums, true);
    } else {
      for (std::size_t i = 0; i < todo_.size(); ++i) {
        Shared y = i + 1 == todo_.size() ? tensor(kY, type_code(out), y_dims_, y_strides_, false) : nullptr;
        at = pointwise(todo_[i].mode, at, todo_[i].other, y, todo_[i].act);
      }
    }
    std::vector<cudnnBackendDescriptor_t> ops;
    for (const Shared& op : ops_) ops.push_back(op->get());
    graph_ = std::make_unique<Descriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnHandle_t h = handle();
    graph_->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
    graph_->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                static_cast<std::int64_t>(ops.size()), ops.data());
    if (!good_ || !graph_->finish()) {
      why_not = "cuDNN has no such graph of operations";
      return false;
    }
    return true;
  }
  const Descriptor& graph() const { return *graph_; }

 private:
  struct Step {
    cudnnPointwiseMode_t mode;
    Shared other;
    Activation act;
  };
  void pending(cudnnPointwiseMode_t mode, Shared other, Activation act = {}) {
    todo_.push_back({mode, std::move(other), act});
  }

  Shared keep(Shared d) {
    good_ = d->finish() && good_;
    kept_.push_back(d);
    return d;
  }
  Shared tensor(std::int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides, bool is_virtual,
                bool by_value = false) {
    auto d = std::make_shared<Descriptor>(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    d->set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    d->set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    d->set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    d->set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    d->set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, by_value ? std::int64_t{4} : std::int64_t{16});
    d->set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value) d->set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    return keep(d);
  }
  Shared operand(std::size_t slot, std::int64_t id, const Dims& dims, const Dims& strides) {
    return tensor(id, type_code(type_of(plan_, layer_.in[slot])), dims, strides, false);
  }
  Shared factor(std::int64_t id) {
    const Dims ones(y_dims_.size(), 1);
    return tensor(id, CUDNN_DATA_FLOAT, ones, ones, false, true);
  }
  Shared next_virtual(cudnnDataType_t type) {
    return tensor(kFirstVirtual + static_cast<std::int64_t>(kept_.size()), type, y_dims_, y_strides_, true);
  }
  Dims per_channel() const {
    Dims d(y_dims_.size(), 1);
    d[y_dims_.size() == 3 ? 2 : 1] = layer_.out[0].dims.back();
    return d;
  }
  Dims per_channel_strides() const {
    const std::int64_t n = layer_.out[0].dims.back();
    return y_dims_.size() == 3 ? Dims{n, n, 1} : Dims{n, 1, n, n};
  }

  // The convolution or product; writes y itself when `last`.
  Shared linear(cudnnDataType_t sums, bool last = false) {
    const ConvGeometry& g = layer_.conv;
    const cudnnDataType_t in = type_code(type_of(plan_, layer_.in[0]));
    const cudnnDataType_t out = type_code(type_of(plan_, layer_.out[0]));
    if (layer_.kind == LayerKind::kConv || g.n > 0) {
      y_dims_ = {g.n, g.m, g.oh, g.ow};
      y_strides_ = {g.oh * g.ow * g.m, 1, g.ow * g.m, g.m};
      const std::int64_t gc = g.group_c();
      Shared x = tensor(kX, in, {g.n, g.c, g.h, g.w}, {g.h * g.w * g.c, 1, g.w * g.c, g.c}, false);
      Shared w = tensor(kW, in, {g.m, gc, g.kh, g.kw}, {g.kh * g.kw * gc, 1, g.kw * gc, gc}, false);
      Shared y = last ? tensor(kY, out, y_dims_, y_strides_, false) : next_virtual(sums);
      auto conv = std::make_shared<Descriptor>(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
      const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
      conv->set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
      conv->set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
      conv->set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
      conv->set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Dims{g.sh, g.sw});
      conv->set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Dims{g.dh, g.dw});
      conv->set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Dims{g.top, g.left});
      const auto behind = [](std::int64_t o, std::int64_t s, std::int64_t k, std::int64_t d,
                             std::int64_t size, std::int64_t before) {
        return std::max<std::int64_t>((o - 1) * s + (k - 1) * d + 1 - size - before, 0);
      };
      conv->set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Dims{behind(g.oh, g.sh, g.kh, g.dh, g.h, g.top),
                                                           behind(g.ow, g.sw, g.kw, g.dw, g.w, g.left)});
      keep(conv);
      auto op = std::make_shared<Descriptor>(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
      const float alpha = 1, beta = 0;
      op->set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, *conv);
      op->set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, *x);
      op->set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, *w);
      op->set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *y);
      op->set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &alpha);
      op->set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &beta);
      ops_.push_back(keep(op));
      return y;
    }
    const LinearSizes s = linear_sizes(layer_);
    y_dims_ = {s.batch, s.m, s.n};
    y_strides_ = {s.batch > 1 ? s.step_d : s.m * s.ldd, s.ldd, 1};
    Shared a = tensor(kX, in, {s.batch, s.m, s.k}, {s.batch > 1 ? s.step_a : s.m * s.lda, s.lda, 1}, false);
    Shared b = tensor(kW, in, {s.batch, s.k, s.n}, {s.batch > 1 ? s.step_b : s.n * s.ldb, 1, s.ldb}, false);
    Shared y = last ? tensor(kY, out, y_dims_, y_strides_, false) : next_virtual(sums);
    auto product = std::make_shared<Descriptor>(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    product->set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    keep(product);
    auto op = std::make_shared<Descriptor>(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    op->set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a);
    op->set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b);
    op->set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *y);
    op->set(CUDNN_ATTR_OPERATION_MATMUL_DESC, *product);
    ops_.push_back(keep(op));
    return y;
  }

  Shared pointwise(cudnnPointwiseMode_t mode, const Shared& x, const Shared& other, Shared y,
                   const Activation& act) {
    auto what = std::make_shared<Descriptor>(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    what->set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    what->set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
      const double low = static_cast<double>(act.lo), high = static_cast<double>(act.hi);
      what->set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1, &low);
      if (high < 3e38) what->set(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, &high);
    }
    keep(what);
    if (y == nullptr) y = next_virtual(CUDNN_DATA_FLOAT);
    auto op = std::make_shared<Descriptor>(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    op->set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *what);
    op->set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x);
    if (other != nullptr) op->set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
    op->set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y);
    ops_.push_back(keep(op));
    return y;
  }

  bool activation(const Activation& act, std::string& why_not) {
    using Kind = Activation::Kind;
    if (act.kind == Kind::kClip && act.lo == 0)
      pending(CUDNN_POINTWISE_RELU_FWD, nullptr, act);
    else if (act.kind == Kind::kSigmoid)
      pending(CUDNN_POINTWISE_SIGMOID_FWD, nullptr);
    else if (act.kind == Kind::kSilu)
      pending(CUDNN_POINTWISE_SWISH_FWD, nullptr);
    else if (act.kind == Kind::kGelu)
      pending(CUDNN_POINTWISE_GELU_FWD, nullptr);
    else if (act.kind == Kind::kTanh)
      pending(CUDNN_POINTWISE_TANH_FWD, nullptr);
    else {
      why_not = "its graphs are not given this activation";
      return false;
    }
    return true;
  }

  const EnginePlan& plan_;
  const PlanLayer& layer_;
  Dims y_dims_, y_strides_;
  std::vector<Shared> kept_, ops_;
  std::vector<Step> todo_;
  std::unique_ptr<Descriptor> graph_;
  bool good_ = true;
};

class CudnnTactic final : public Tactic {
 public:
  CudnnTactic(const PlanLayer& layer, std::string name, std::shared_ptr<Descriptor> plan,
              std::int64_t workspace)
      : name_(std::move(name)), plan_(std::move(plan)), workspace_(workspace) {
    r_scale_ = layer.epilogue.r_scale;
    inverse_ = 1 / layer.epilogue.y_scale;
    uses_r_ = layer.in[3].present() && r_scale_ != 1;
  }
  const std::string& name() const override { return name_; }
  std::int64_t workspace() const override { return workspace_; }

  void launch(CUstream stream, const Operands& at) override {
    std::vector<std::int64_t> ids;
    std::vector<void*> pointers;
    const std::int64_t slots[] = {kX, kW, kBias, kResidual, kScale};
    for (std::size_t i = 0; i < at.in.size() && i < 5; ++i)
      if (at.in[i] != 0) ids.push_back(slots[i]), pointers.push_back(reinterpret_cast<void*>(at.in[i]));
    ids.push_back(kY), pointers.push_back(reinterpret_cast<void*>(at.out[0]));
    if (uses_r_) ids.push_back(kResidualFactor), pointers.push_back(&r_scale_);
    if (inverse_ != 1) ids.push_back(kOutputFactor), pointers.push_back(&inverse_);
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    void* workspace = reinterpret_cast<void*>(at.workspace);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             static_cast<std::int64_t>(pointers.size()), pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(ids.size()),
             ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!pack.finish()) fail(ErrorCode::kDevice, "cuDNN refuses the operands of '{}'", name_);
    check(cudnn().cudnnSetStream(handle(), reinterpret_cast<cudaStream_t>(stream)), "cudnnSetStream");
    check(cudnn().cudnnBackendExecute(handle(), plan_->get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  std::string name_;
  std::shared_ptr<Descriptor> plan_;
  std::int64_t workspace_;
  float r_scale_ = 1, inverse_ = 1;
  bool uses_r_ = false;
};

std::int64_t get_int(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t key) {
  std::int64_t value = -1, count = 0;
  cudnn().cudnnBackendGetAttribute(d, key, CUDNN_TYPE_INT64, 1, &count, &value);
  return value;
}

// "12:3=1,7=0": the engine's number and its knobs.
std::string config_name(cudnnBackendDescriptor_t config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t e = engine.get();
  std::int64_t count = 0;
  if (cudnn().cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &count, &e) != CUDNN_STATUS_SUCCESS)
    return "";
  std::string name = std::to_string(get_int(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX)) + ":";
  std::vector<std::unique_ptr<Descriptor>> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    knobs.push_back(std::make_unique<Descriptor>(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    raw.push_back(knobs.back()->get());
  }
  if (cudnn().cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS, &count,
                                       raw.data()) != CUDNN_STATUS_SUCCESS)
    return "";
  for (std::int64_t i = 0; i < count; ++i) {
    cudnnBackendKnobType_t type{};
    std::int64_t one = 0;
    cudnn().cudnnBackendGetAttribute(raw[static_cast<std::size_t>(i)], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                     CUDNN_TYPE_KNOB_TYPE, 1, &one, &type);
    name += fmt::format("{}{}={}", i == 0 ? "" : ",", static_cast<int>(type),
                        get_int(raw[static_cast<std::size_t>(i)], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return name;
}

// Tensor cores have no float32: such an engine rounds its operands to TF32 or less.
bool uses_less_precision(cudnnBackendDescriptor_t engine) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  std::int64_t count = 0;
  if (cudnn().cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                       notes) != CUDNN_STATUS_SUCCESS)
    return true;
  for (std::int64_t i = 0; i < count; ++i)
    if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
        notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
        notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
      return true;
  return false;
}

std::unique_ptr<Tactic> plan_of(const LayerGraph& graph, const PlanLayer& layer, const std::string& name,
                                bool full_precision) {
  const std::string text = name.substr(6);  // behind "cudnn:"
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return nullptr;
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.graph());
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
             static_cast<std::int64_t>(std::strtoll(text.c_str(), nullptr, 10)));
  if (!engine.finish()) return nullptr;
  if (full_precision && uses_less_precision(engine.get())) return nullptr;
  std::vector<std::unique_ptr<Descriptor>> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::size_t at = colon + 1; at < text.size();) {
    std::size_t end = text.find(',', at);
    if (end == std::string::npos) end = text.size();
    const std::size_t equals = text.find('=', at);
    if (equals == std::string::npos || equals > end) return nullptr;
    const auto type = static_cast<cudnnBackendKnobType_t>(std::atoi(text.c_str() + at));
    auto knob = std::make_unique<Descriptor>(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    knob->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
              static_cast<std::int64_t>(std::strtoll(text.c_str() + equals + 1, nullptr, 10)));
    if (!knob->finish()) return nullptr;
    raw.push_back(knob->get());
    knobs.push_back(std::move(knob));
    at = end + 1;
  }
  Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!raw.empty())
    config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               static_cast<std::int64_t>(raw.size()), raw.data());
  if (!config.finish()) return nullptr;
  auto plan = std::make_shared<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  cudnnHandle_t h = handle();
  plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
  plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (!plan->finish()) return nullptr;
  const std::int64_t workspace = get_int(plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  return std::make_unique<CudnnTactic>(layer, name, plan, std::max<std::int64_t>(workspace, 0));
}

}  // namespace

std::vector<std::unique_ptr<Tactic>> cudnn_tactics(const EnginePlan& plan, const PlanLayer& layer,
                                                   const std::string& wanted, int most,
                                                   std::string& why_not) {
  std::vector<std::unique_ptr<Tactic>> tactics;
  const auto refuse = [&](const char* why) {
    why_not = why;
    return std::move(tactics);
  };
  const ConvGeometry& g = layer.conv;
  if (layer.kind != LayerKind::kConv && layer.kind != LayerKind::kGemm)
    return refuse("neither a convolution nor a product");
  if (layer.kind == LayerKind::kConv && g.group != 1)
    return refuse("groups: their weights are packed for another kernel");
  if (layer.out.size() > 1 || normalizes(layer)) return refuse("rows that are normalized, or two outputs");
  for (const PlanView* view : {&layer.in[0], &layer.in[1], &layer.in[3], &layer.out[0]})
    if (view->present() && (type_of(plan, *view) == DType::kE4M3FN || type_of(plan, *view) == DType::kU8))
      return refuse("E4M3 (slower than float16 in its convolutions) and uint8 are left to other kernels");
  const bool codes_in = type_of(plan, layer.in[0]) == DType::kI8,
             codes_out = type_of(plan, layer.out[0]) == DType::kI8;
  if (codes_out && !codes_in) return refuse("codes behind a float product");
  if (layer.epilogue.y_zero != 0 || layer.in.size() > kYScales)
    return refuse("steps by column or a zero point");
  if (layer.epilogue.alpha != 1) return refuse("a factor on the product");
  const DType type = type_of(plan, layer.in[0]);
  const bool full_precision = type == DType::kF32 && plan.precision != "tf32";
  if (layer.kind == LayerKind::kGemm) {
    // Its plans take longest to make and lost on nearly every product, by 1 % where one won.
    if (wanted.empty() && type != DType::kF32 && Device::get().facts().architecture == "sm_90a")
      return refuse("products of 16 and 8 bits are left to cuBLASLt and wgmma");
    if (layer.in[0].strides[2] != 1 || layer.in[1].strides[2] != 1 || layer.out[0].strides[2] != 1)
      return refuse("an operand is not contiguous along k");
    if (g.n > 0 && (!is_dense(layer.in[0]) || !is_dense(layer.out[0]))) return refuse("a map with gaps");
    if (layer.in[3].present() && layer.in[3].strides != layer.out[0].strides)
      return refuse("residual and output have different strides");
  }
  const std::int64_t channels = layer.in[0].dims.back(), unit = type == DType::kI8    ? 16
                                                                : type == DType::kF32 ? 1
                                                                                      : 8;
  if (channels % unit != 0 || layer.out[0].dims.back() % unit != 0)
    return refuse("channels are not a multiple of 16 bytes");
  LayerGraph graph(plan, layer);
  if (!graph.build(why_not)) return tactics;
  if (!wanted.empty()) {
    if (wanted.rfind("cudnn:", 0) == 0)
      if (auto tactic = plan_of(graph, layer, wanted, full_precision)) tactics.push_back(std::move(tactic));
    if (tactics.empty()) why_not = "this library does not know the engine any more";
    return tactics;
  }
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph());
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!heuristic.finish()) return refuse("its heuristic has no engine for this graph");
  std::vector<std::unique_ptr<Descriptor>> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int i = 0; i < most; ++i) {
    configs.push_back(std::make_unique<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(configs.back()->get());
  }
  std::int64_t count = 0;
  cudnn().cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, raw.data());
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, most); ++i) {
    const std::string name = config_name(raw[static_cast<std::size_t>(i)]);
    if (name.empty()) continue;
    if (auto tactic = plan_of(graph, layer, "cudnn:" + name, full_precision))
      tactics.push_back(std::move(tactic));
  }
  if (tactics.empty()) why_not = "none of its engines supports this graph";
  return tactics;
}

}  // namespace pare::cuda
