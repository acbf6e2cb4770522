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
// How a view lies, asked for before the first copy needs it.
__device__ __forceinline__ void ready_(const Map* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
__device__ __forceinline__ void fetch_(u32 to, const Map* map, u32 bar, i32 k, i32 row, i32 batch) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to), "l"(map), "r"(bar), "r"(k), "r"(row), "r"(batch) : "memory");
}
__device__ __forceinline__ void fetch_for_all_(u32 to, const Map* map, u32 bar, i32 k, i32 row, i32 batch, u32 blocks) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to), "l"(map), "r"(bar), "r"(k), "r"(row), "r"(batch), "h"((u16)blocks) : "memory");
}
__device__ __forceinline__ void all_blocks_() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void fetch_any_(u32 to, const Map* map, u32 bar, i32 k, i32 row, i32 batch, u32 blocks) {
  if ($CLUSTER$ == 1 || blocks == 0)
    fetch_(to, map, bar, k, row, batch);
  else
    fetch_for_all_(to, map, bar, k, row, batch, blocks);
}
// Pixels of windows: (x, y) is where the first window begins, (dx, dy) which of its pixels.
__device__ __forceinline__ void fetch_pixels_(u32 to, const Map* map, u32 bar, i32 c, i32 x, i32 y, i32 n, i32 dx, i32 dy, u32 blocks) {
  if ($CLUSTER$ == 1 || blocks == 0)
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to), "l"(map), "r"(bar), "r"(c), "r"(x), "r"(y), "r"(n), "h"((u16)dx), "h"((u16)dy) : "memory");
  else
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(to), "l"(map), "r"(bar), "r"(c), "r"(x), "r"(y), "r"(n), "h"((u16)dx), "h"((u16)dy), "h"((u16)blocks) : "memory");
}
__device__ __forceinline__ u64 describe_(u32 at) { return (u64)((at & 0x3FFFF) >> 4) | (1ull << 16) | ($KB$ / 2ull << 32) | (($KB$ == 128 ? 1ull : 2ull) << 62); }
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

static TensorMap map_of(int slot, DType type, const WgmmaSetup& u, std::int64_t rows, std::int64_t pitch,
                        std::int64_t step, int box) {
  const std::int64_t es = size_of(type);
  TensorMap map;
  map.slot = slot;
  map.type = type;
  map.dims[0] = u.s.k, map.dims[1] = rows, map.dims[2] = u.s.batch;
  map.strides[0] = pitch * es;
  map.strides[1] = u.s.batch > 1 ? step * es : std::max<std::int64_t>(pitch * es * rows, 16);
  map.box[0] = static_cast<int>(u.bytes / es), map.box[1] = box, map.box[2] = 1;
  map.bytes = u.bytes;
  return map;
}

TensorMap wgmma_w_map(const WgmmaSetup& u, int box) {
  return map_of(1, u.w, u, u.s.n, u.s.ldb, u.s.step_b, box);
}

TensorMap wgmma_x_map(const PlanLayer& layer, const WgmmaSetup& u, int box) {
  if (!u.s.conv) return map_of(0, u.x, u, u.s.m, u.s.lda, u.s.step_a, box);
  const ConvGeometry& g = layer.conv;
  const std::int64_t es = size_of(u.x);
  TensorMap map;
  map.slot = 0;
  map.type = u.x;
  map.dims[0] = g.c, map.dims[1] = g.w, map.dims[2] = g.h, map.dims[3] = g.n;
  map.strides[0] = g.c * es, map.strides[1] = g.w * g.c * es, map.strides[2] = g.h * g.w * g.c * es;
  map.box[0] = static_cast<int>(u.bytes / es), map.box[1] = box, map.box[2] = 1;
  map.bytes = u.bytes;
  map.pixels = true;
  // Windows begin between the corners: as many as there are outputs.
  map.lower[0] = static_cast<int>(-g.left), map.lower[1] = static_cast<int>(-g.top);
  map.upper[0] = static_cast<int>((g.ow - 1) * g.sw - g.left - (g.w - 1));
  map.upper[1] = static_cast<int>((g.oh - 1) * g.sh - g.top - (g.h - 1));
  map.step[0] = static_cast<int>(g.sw), map.step[1] = static_cast<int>(g.sh);
  return map;
}

std::string wgmma_rows_code(const PlanLayer& layer, const char* row) {
  if (layer.kind != LayerKind::kConv) return "";
  const ConvGeometry& g = layer.conv;
  return fmt::format(
      "const u32 pixel = {0}; const int x0 = (int)(pixel % {1}u) * {2} - {3}, y0 = (int)(pixel / {1}u % "
      "{4}u) * {5} - "
      "{6}, image = (int)(pixel / {7}u);\n",
      row, g.ow, g.sw, g.left, g.oh, g.sh, g.top, g.ow * g.oh);
}

std::string wgmma_fetch_code(const PlanLayer& layer, const WgmmaSetup& u, const char* step, const char* to,
                             const char* row, const char* bar, const char* batch, const char* mask) {
  const ConvGeometry& g = layer.conv;
  const std::int64_t each = u.bytes / size_of(u.x);
  if (layer.kind != LayerKind::kConv)
    return fmt::format("fetch_any_({}, &map_x, {}, ({}) * {}, {}, {}, {});\n", to, bar, step, each, row,
                       batch, mask);
  const std::int64_t chunks = g.c / each;
  return fmt::format(
      "{{ const int at_ = {0}, tap = at_ / {1}; fetch_pixels_({2}, &map_x, {3}, at_ % {1} * {4}, x0, y0, "
      "image, tap % "
      "{5} * {6}, tap / {5} * {7}, {8}); }}\n",
      step, chunks, to, bar, each, g.kw, g.dw, g.dh, mask);
}

std::string wgmma_setup(const EnginePlan& plan, const PlanLayer& layer, WgmmaSetup& u) {
  if (layer.kind != LayerKind::kGemm && layer.kind != LayerKind::kConv) return "not a product";
  u.s = linear_sizes(layer);
  u.x = type_of(plan, layer.in[0]), u.w = type_of(plan, layer.in[1]);
  const bool codes = (u.x == DType::kI8 || u.x == DType::kU8) && u.w == DType::kI8;
  if (!codes && (u.x != u.w || (u.x != DType::kF16 && u.x != DType::kBF16 && u.x != DType::kE4M3FN)))
    return "operands are not float16, bfloat16, E4M3 or int8";
  const std::int64_t es = size_of(u.x);
  if (u.s.conv) {
    const ConvGeometry& g = layer.conv;
    if (g.group != 1) return "groups";
    u.bytes = g.c * es % 128 == 0 ? 128 : 64;
    if (g.c * es % u.bytes != 0) return "pixels are not a multiple of 64 bytes";
    if (g.kh > 32 || g.kw > 32 || g.dh > 4 || g.dw > 4 || g.sh > 8 || g.sw > 8 || g.top > 60 || g.left > 60 ||
        (g.kw - 1) * g.dw > 60 || (g.kh - 1) * g.dh > 60)
      return "a window out of range";
    if (layer.in[0].offset * es % 16 != 0 || layer.in[1].offset * es % 16 != 0)
      return "rows do not begin at multiples of 16 bytes";
    if (u.s.m > 0x3FFFFFFF || u.s.n > 0x3FFFFFFF || u.s.m == 0 || u.s.n == 0 || u.s.k == 0)
      return "sizes out of range";
    u.steps = g.kh * g.kw * (g.c * es / u.bytes);
    u.width = epilogue_width(plan, layer, u.s.n);
    return finish_why_not(layer, u.width);
  }
  u.bytes = u.s.k * es <= 64 ? 64 : 128;
  u.steps = (u.s.k * es + u.bytes - 1) / u.bytes;
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

const char* early_weights(const EnginePlan& plan, const PlanLayer& layer) {
  return plan.tensors[static_cast<std::size_t>(layer.in[1].tensor)].role == PlanRole::kWeight ? "true"
                                                                                              : "false";
}

WgmmaSetup WgmmaSetup::other() const {
  WgmmaSetup o = *this;
  o.s = short_s;
  o.steps = short_steps;
  return o;
}

std::string wgmma_shortcut_setup(const EnginePlan& plan, const PlanLayer& layer, WgmmaSetup& u) {
  PlanLayer plain = layer;
  plain.shortcut = {};
  std::string why = wgmma_setup(plan, plain, u);
  if (!why.empty()) return why;
  if (!has_fragment_code(plan, layer)) return "columns not in eights";
  WgmmaSetup other;
  why = wgmma_setup(plan, shortcut_layer(layer), other);
  if (!why.empty()) return "its shortcut: " + why;
  const std::int64_t es = size_of(u.x), bytes = std::min(u.bytes, other.bytes);
  u.bytes = static_cast<int>(bytes);
  u.steps = (u.s.k * es + bytes - 1) / bytes;
  u.short_s = other.s;
  u.short_steps = (other.s.k * es + bytes - 1) / bytes;
  return "";
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
                         {"KB", std::to_string(u.bytes)},
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
