// cuBLASLt. FP8 products take a scale for each row and column (outer vectors): ours are one a column, so the
// rows get ones; their bias must have the type of the output. Both lie beside the engine's memory, a few
// kilobytes a layer.
//
// Its matrices are column-major: y = x w^T in rows is y^T = w x^T in columns, so the weight is A
// (transposed) and x is B, both contiguous along k, and the bias runs along A's rows.
#include <cstring>

#include "engine/cuda/device.h"
#include "engine/cuda/linear_code.h"
#include "engine/cuda/tactic.h"
#include "engine/numeric/convert.h"

namespace pare::cuda {
namespace {

constexpr std::size_t kWorkspace = 32u << 20;

cublasLtHandle_t handle() {
  static const cublasLtHandle_t h = [] {
    cublasLtHandle_t made = nullptr;
    check(lt().cublasLtCreate(&made), "cublasLtCreate");
    return made;
  }();
  return h;
}

cudaDataType_t type_code(DType type) {
  switch (type) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kI8:
      return CUDA_R_8I;
    case DType::kE4M3FN:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

// What all algorithms of one layer share.
struct Problem {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  float alpha = 1, beta = 0;
  bool has_bias = false, has_residual = false, fp8 = false;
  DeviceMemory ones, bias;  // fp8
  ~Problem() {
    if (operation != nullptr) lt().cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {a, b, c, d})
      if (layout != nullptr) lt().cublasLtMatrixLayoutDestroy(layout);
  }
};

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t key, T value) {
  check(lt().cublasLtMatmulDescSetAttribute(desc, key, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}

cublasLtMatrixLayout_t layout(DType type, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                              std::int64_t batch, std::int64_t step) {
  cublasLtMatrixLayout_t made = nullptr;
  check(lt().cublasLtMatrixLayoutCreate(&made, type_code(type), static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), stride),
        "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    lt().cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    lt().cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                          sizeof step);
  }
  return made;
}

std::string hex_of(const cublasLtMatmulAlgo_t& algo) {
  std::string text;
  for (const std::uint64_t word : algo.data) text += fmt::format("{:x}.", word);
  text.pop_back();
  return text;
}

bool algo_of(const std::string& text, cublasLtMatmulAlgo_t& algo) {
  std::size_t at = 0;
  for (std::uint64_t& word : algo.data) {
    if (at >= text.size()) return false;
    std::size_t end = text.find('.', at);
    if (end == std::string::npos) end = text.size();
    word = std::strtoull(text.substr(at, end - at).c_str(), nullptr, 16);
    at = end + 1;
  }
  return true;
}

class LtTactic final : public Tactic {
 public:
  LtTactic(std::shared_ptr<Problem> problem, const cublasLtMatmulAlgo_t& algo, std::size_t workspace)
      : problem_(std::move(problem)), algo_(algo), workspace_(workspace), name_("cublaslt:" + hex_of(algo)) {}
  const std::string& name() const override { return name_; }
  std::int64_t workspace() const override { return static_cast<std::int64_t>(workspace_); }

  void launch(CUstream stream, const Operands& at) override {
    Problem& p = *problem_;
    if (p.has_bias) set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.fp8 ? p.bias.at() : at.in[2]);
    if (p.fp8) set(p.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at.in[4]);
    if (p.fp8) set(p.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.ones.at());
    const auto pointer = [](CUdeviceptr x) { return reinterpret_cast<void*>(x); };
    check(lt().cublasLtMatmul(handle(), p.operation, &p.alpha, pointer(at.in[1]), p.a, pointer(at.in[0]), p.b,
                              &p.beta, pointer(p.has_residual ? at.in[3] : at.out[0]), p.c,
                              pointer(at.out[0]), p.d, &algo_, pointer(at.workspace), workspace_,
                              reinterpret_cast<cudaStream_t>(stream)),
          "cublasLtMatmul");
  }

 private:
  std::shared_ptr<Problem> problem_;
  cublasLtMatmulAlgo_t algo_;
  std::size_t workspace_;
  std::string name_;
};

}  // namespace

std::vector<std::unique_ptr<Tactic>> lt_tactics(const EnginePlan& plan, const PlanLayer& layer,
                                                const std::string& wanted, int most, std::string& why_not) {
  std::vector<std::unique_ptr<Tactic>> tactics;
  const auto refuse = [&](const char* why) {
    why_not = why;
    return std::move(tactics);
  };
  if (layer.kind != LayerKind::kGemm) return refuse("not a product");
  const DType type = type_of(plan, layer.in[0]), out = type_of(plan, layer.out[0]);
  const bool fp8 = type == DType::kE4M3FN && type_of(plan, layer.in[1]) == DType::kE4M3FN;
  if (!fp8 && type != DType::kF32 && type != DType::kF16 && type != DType::kBF16)
    return refuse("integers come out as int32 or per tensor only");
  if (out != DType::kF32 && out != DType::kF16 && out != DType::kBF16) return refuse("codes come out");
  if (layer.in.size() > kYScales) return refuse("steps by column");
  if (layer.out.size() > 1 || normalizes(layer)) return refuse("rows that are normalized, or two outputs");
  const Epilogue& e = layer.epilogue;
  if (!e.identity() && !e.relu()) return refuse("its epilogues have no such activation");
  if (layer.in[0].strides[2] != 1 || layer.in[1].strides[2] != 1 || layer.out[0].strides[2] != 1)
    return refuse("an operand is not contiguous along k");
  if (layer.in[4].present() != fp8) return refuse("scales per column");
  if (fp8 && (out == DType::kF32 || layer.in[0].dims[0] != 1))
    return refuse("fp8: float32 comes out, or a batch");
  if (layer.in[3].present() && type_of(plan, layer.in[3]) != out)
    return refuse("residual and output differ in type");
  if (!fp8 && layer.in[2].present() && type_of(plan, layer.in[2]) != out)
    return refuse("bias and output differ in type");
  const LinearSizes s = linear_sizes(layer);
  auto problem = std::make_shared<Problem>();
  Problem& p = *problem;
  p.alpha = e.alpha;
  p.has_bias = layer.in[2].present();
  p.has_residual = layer.in[3].present();
  p.beta = p.has_residual ? e.r_scale : 0;
  const cublasComputeType_t compute =
      type == DType::kF32 && plan.precision == "tf32" ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(lt().cublasLtMatmulDescCreate(&p.operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  set(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  const cublasLtEpilogue_t epilogue = p.has_bias
                                          ? (e.relu() ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                          : (e.relu() ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT);
  set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (p.has_bias) set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_code(out));
  if (fp8) {
    p.fp8 = true;
    set(p.operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(p.operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(p.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
    const std::vector<float> ones(static_cast<std::size_t>(s.m), 1.0f);
    p.ones = DeviceMemory(s.m * 4);
    copy_to_device(p.ones.at(), ones.data(), s.m * 4);
    set(p.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.ones.at());  // launch() sets the layer's
    set(p.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.ones.at());
    if (p.has_bias) {
      const Tensor& given = plan.tensors[static_cast<std::size_t>(layer.in[2].tensor)].data;
      if (given.empty() || given.size() != s.n) return refuse("a bias that is no weight");
      Tensor rounded = Tensor::allocate(out, {s.n});
      convert(given.view(), rounded.view());
      p.bias = DeviceMemory(rounded.bytes());
      copy_to_device(p.bias.at(), rounded.data(), rounded.bytes());
      set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.at());
    }
  }
  p.a = layout(type, s.k, s.n, s.ldb, s.batch, s.step_b);
  p.b = layout(type, s.k, s.m, s.m == 1 ? std::max(s.lda, s.k) : s.lda, s.batch, s.step_a);
  p.c = layout(out, s.n, s.m, p.has_residual ? std::max(s.ldr, s.n) : std::max(s.ldd, s.n), s.batch,
               p.has_residual ? s.step_r : s.step_d);
  p.d = layout(out, s.n, s.m, std::max(s.ldd, s.n), s.batch, s.step_d);
  if (!wanted.empty()) {
    cublasLtMatmulAlgo_t algo;
    if (wanted.rfind("cublaslt:", 0) != 0 || !algo_of(wanted.substr(9), algo))
      return refuse("not an algorithm's name");
    cublasLtMatmulHeuristicResult_t result;
    if (lt().cublasLtMatmulAlgoCheck(handle(), p.operation, p.a, p.b, p.c, p.d, &algo, &result) !=
        CUBLAS_STATUS_SUCCESS)
      return refuse("this library does not know the algorithm any more");
    tactics.push_back(std::make_unique<LtTactic>(problem, algo, result.workspaceSize));
    return tactics;
  }
  cublasLtMatmulPreference_t preference = nullptr;
  check(lt().cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::size_t limit = kWorkspace;
  lt().cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                            sizeof limit);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status = lt().cublasLtMatmulAlgoGetHeuristic(handle(), p.operation, p.a, p.b, p.c, p.d,
                                                                    preference, most, results.data(), &found);
  lt().cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) return refuse("its heuristic has no algorithm for this");
  for (int i = 0; i < found; ++i) {
    const auto& r = results[static_cast<std::size_t>(i)];
    if (r.state == CUBLAS_STATUS_SUCCESS)
      tactics.push_back(std::make_unique<LtTactic>(problem, r.algo, r.workspaceSize));
  }
  return tactics;
}

}  // namespace pare::cuda
