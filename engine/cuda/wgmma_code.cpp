#include "engine/cuda/wgmma_code.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare::cuda {
namespace {

const char* kHelpers = R"CUDA(
struct alignas(64) Map { u64 words[16]; };
__device__ __forceinline__ u32 shared_(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_(u32 at, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count)); }
__device__ __forceinline__ void expect_(u32 at, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void pass_(u32 at, u32 parity) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}\n" ::"r"(at), "r"(parity) : "memory");
}
__device__ __forceinline__ void arrive_(u32 at, u32 block) {
  if ($CLUSTER$ == 1)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  else
    asm volatile("{\n.reg .b32 far;\nmapa.shared::cluster.u32 far, %0, %1;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [far];\n}\n" ::"r"(at), "r"(block) : "memory");
}
__device__ __forceinline__ void fetch_(u32 to, const Map* map, u32 bar, i32 k, i32 row, i32 batch) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to), "l"(map), "r"(bar), "r"(k), "r"(row), "r"(batch) : "memory");
}
__device__ __forceinline__ void fetch_for_all_(u32 to, const Map* map, u32 bar, i32 k, i32 row, i32 batch) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to), "l"(map), "r"(bar), "r"(k), "r"(row), "r"(batch), "h"((u16)3) : "memory");
}
__device__ __forceinline__ u64 describe_(u32 at) { return (u64)((at & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }
__device__ __forceinline__ void wgmma_($ACC$ (&d)[$NR$], u64 a, u64 b, i32 on) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, $PRED$, 0;\nwgmma.mma_async.sync.aligned.$MMA$ {$REGS$}, $DA$, $DB$, p$FLAGS$;\n}\n"
               : $BOUND$ : "l"(a), "l"(b), "r"(on));
}
)CUDA";

const char* operand_word(DType type) {
  switch (type) {
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI8:
      return "s8";
    case DType::kU8:
      return "u8";
    default:
      return "e4m3";
  }
}

}  // namespace

TensorMap wgmma_map(int slot, DType type, const LinearSizes& s, std::int64_t rows, std::int64_t pitch,
                    std::int64_t step, int box) {
  const std::int64_t es = size_of(type);
  TensorMap map;
  map.slot = slot;
  map.type = type;
  map.dims[0] = s.k, map.dims[1] = rows, map.dims[2] = s.batch;
  map.strides[0] = pitch * es;
  map.strides[1] = s.batch > 1 ? step * es : std::max<std::int64_t>(pitch * es * rows, 16);
  map.box[0] = static_cast<int>(128 / es), map.box[1] = box, map.box[2] = 1;
  return map;
}

std::string wgmma_setup(const EnginePlan& plan, const PlanLayer& layer, WgmmaSetup& u) {
  if (layer.kind != LayerKind::kGemm) return "not a product";
  u.s = linear_sizes(layer);
  u.x = type_of(plan, layer.in[0]), u.w = type_of(plan, layer.in[1]);
  const bool codes = (u.x == DType::kI8 || u.x == DType::kU8) && u.w == DType::kI8;
  if (!codes && (u.x != u.w || (u.x != DType::kF16 && u.x != DType::kBF16 && u.x != DType::kE4M3FN)))
    return "operands are not float16, bfloat16, E4M3 or int8";
  const std::int64_t es = size_of(u.x);
  if (layer.in[0].strides[2] != 1 || layer.in[1].strides[2] != 1)
    return "an operand is not contiguous along k";
  for (const std::int64_t elements :
       {u.s.m > 1 ? u.s.lda : 0, u.s.n > 1 ? u.s.ldb : 0, layer.in[0].offset, layer.in[1].offset,
        u.s.batch > 1 ? u.s.step_a : 0, u.s.batch > 1 ? u.s.step_b : 0})
    if (elements * es % 16 != 0) return "rows do not begin at multiples of 16 bytes";
  if (u.s.batch > 1 && (u.s.step_a == 0 || u.s.step_b == 0)) return "one operand for all of a batch";
  if (u.s.lda < u.s.k || u.s.ldb < u.s.k || u.s.lda == 0) return "rows that overlap";
  if (u.s.m > 0x3FFFFFFF || u.s.n > 0x3FFFFFFF || u.s.k > 0x3FFFFFFF || u.s.batch > 65535 || u.s.k == 0 ||
      u.s.m == 0 || u.s.n == 0)
    return "sizes out of range";
  if (layer.in[3].present() && (u.s.ldr != u.s.ldd || (u.s.batch > 1 && u.s.step_r != u.s.step_d)))
    return "residual and output have different strides";
  u.width = epilogue_width(plan, layer, u.s.n);
  return finish_why_not(layer, u.width);
}

std::string wgmma_helpers(const WgmmaSetup& u, int n, int cluster) {
  const int es = size_of(u.x), registers = n / 2;
  const bool integer = u.x == DType::kI8 || u.x == DType::kU8;
  std::string regs, bound;
  for (int i = 0; i < registers; ++i) {
    regs += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
    bound += fmt::format("{}\"+{}\"(d[{}])", i == 0 ? "" : ", ", integer ? 'r' : 'f', i);
  }
  return fill(kHelpers, {{"ACC", integer ? "int" : "float"},
                         {"NR", std::to_string(registers)},
                         {"REGS", regs},
                         {"BOUND", bound},
                         {"CLUSTER", std::to_string(cluster)},
                         {"DA", fmt::format("%{}", registers)},
                         {"DB", fmt::format("%{}", registers + 1)},
                         {"PRED", fmt::format("%{}", registers + 2)},
                         {"MMA", fmt::format("m64n{}k{}.{}.{}.{}", n, 32 / es, integer ? "s32" : "f32",
                                             operand_word(u.x), operand_word(u.w))},
                         {"FLAGS", integer   ? ""
                                   : es == 2 ? ", 1, 1, 0, 0"
                                             : ", 1, 1"}});
}

}  // namespace pare::cuda
