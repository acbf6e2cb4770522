#include "engine/cuda/tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/cuda/compile.h"
#include "engine/cuda/device.h"
#include "engine/cuda/verdict.h"
#include "engine/numeric/convert.h"

namespace pare::cuda {
namespace {

// What kernels are compiled for. The device is open before the compilers fork; their processes never touch
// it.
const std::string& target() { return Device::get().facts().architecture; }

const Tensor* given_binary(const EnginePlan& plan, const std::string& hash) {
  auto found = plan.binaries.find(hash);
  if (found == plan.binaries.end())
    found = plan.binaries.find(portable_architecture(plan, target()) + "/" + hash);
  return found == plan.binaries.end() ? nullptr : &found->second;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void nvrtc_version(int& major, int& minor) {  // 0.0 without it
  try {
    nvrtc().nvrtcVersion(&major, &minor);
  } catch (const Error&) {
  }
}

std::string group_of(const std::string& tactic) { return tactic.substr(0, tactic.find(':')); }

// Without the numbers of a library's algorithm.
std::string short_name(const std::string& tactic) {
  const std::string group = group_of(tactic);
  if (group == "split") return group + ":cublaslt";
  return group == "cublaslt" ? group : tactic;
}

// Memory that a candidate works on: activations once, weights in several copies.
class Stage {
 public:
  Stage(const EnginePlan& plan, const PlanLayer& layer, bool rotate) : plan_(plan) {
    std::int64_t weights = 0;
    for (const PlanView& view : layer.in)
      if (view.present() && spec(view).role == PlanRole::kWeight) weights += spec(view).bytes();
    copies_ = 1;
    if (rotate && weights > 0)
      copies_ =
          static_cast<int>(std::clamp<std::int64_t>(3 * Device::get().facts().l2_bytes / weights, 1, 24));
    for (int c = 0; c < copies_; ++c) {
      Operands at;
      for (const PlanView& view : layer.in) at.in.push_back(view.present() ? address(view, c) : 0);
      for (const PlanView& view : layer.out) at.out.push_back(address(view, 0));
      operands_.push_back(std::move(at));
    }
  }
  int copies() const { return copies_; }
  Operands& at(int copy) { return operands_[static_cast<std::size_t>(copy % copies_)]; }

 private:
  const PlanTensor& spec(const PlanView& view) const {
    return plan_.tensors[static_cast<std::size_t>(view.tensor)];
  }
  CUdeviceptr address(const PlanView& view, int copy) {
    const PlanTensor& t = spec(view);
    const auto key = std::make_pair(view.tensor, t.role == PlanRole::kWeight ? copy : 0);
    auto it = memory_.find(key);
    if (it == memory_.end()) {
      DeviceMemory block(std::max<std::int64_t>(t.bytes(), 16) + 256);
      fill(t, block);
      it = memory_.emplace(key, std::move(block)).first;
    }
    return it->second.at() + static_cast<CUdeviceptr>(view.offset * size_of(t.dtype));
  }
  static void fill(const PlanTensor& t, const DeviceMemory& block) {
    if (t.role == PlanRole::kWeight) {
      copy_to_device(block.at(), t.data.data(), t.bytes());
      return;
    }
    if (!is_float(t.dtype) && bits(t.dtype) > 8) {  // indices: all rows 0
      fill_device(block.at(), 0, t.bytes());
      return;
    }
    const std::int64_t count = std::min<std::int64_t>(element_count(t.dims), 1 << 18);
    Tensor sample = Tensor::allocate(t.dtype, {count});
    std::mt19937 random(7);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& v : values) v = static_cast<float>(static_cast<double>(random()) / 4294967296.0 * 2 - 1);
    if (is_float(t.dtype)) {
      if (t.dtype == DType::kF32)
        std::copy(values.begin(), values.end(), sample.mut<float>());
      else
        encode(t.dtype, values.data(), sample.mut<std::byte>(), count);
    } else {
      for (std::int64_t i = 0; i < count; ++i)
        sample.mut<std::int8_t>()[i] = static_cast<std::int8_t>(values[static_cast<std::size_t>(i)] * 100);
    }
    for (std::int64_t done = 0; done < t.bytes(); done += sample.bytes())
      copy_to_device(block.at() + static_cast<CUdeviceptr>(done), sample.data(),
                     std::min(sample.bytes(), t.bytes() - done));
  }

  const EnginePlan& plan_;
  int copies_ = 1;
  std::map<std::pair<int, int>, DeviceMemory> memory_;
  std::vector<Operands> operands_;
};

struct Candidate {
  std::unique_ptr<Tactic> tactic;
  double us = INFINITY;
  std::string failed;
  std::vector<float> sample;  // of its results
};

class LayerTimer {
 public:
  LayerTimer(const EnginePlan& plan, const PlanLayer& layer, bool rotate)
      : plan_(plan), layer_(layer), stage_(plan, layer, rotate) {}

  void time(std::vector<Candidate>& candidates) {
    std::int64_t workspace = 256, counters = 0;
    for (const Candidate& c : candidates) {
      workspace = std::max(workspace, c.tactic->workspace());
      counters = std::max(counters, c.tactic->counters());
    }
    workspace_ = DeviceMemory(workspace);
    counters_ = DeviceMemory(counters * 4 + 256);
    fill_device(counters_.at(), 0, counters_.bytes());
    for (int c = 0; c < stage_.copies(); ++c) {
      stage_.at(c).workspace = workspace_.at();
      stage_.at(c).counters = counters_.at();
      stage_.at(c).eager =
          true;  // launches of one candidate follow each other: only generated kernels read it
    }
    double best = INFINITY;
    for (Candidate& c : candidates) {
      clear_outputs();
      round(c, std::max(4, stage_.copies()), 1);
      if (c.failed.empty()) c.sample = sample();
    }
    drop_outliers(candidates);
    for (const Candidate& c : candidates) best = std::min(best, c.us);
    for (Candidate& c : candidates)
      if (c.us <= 1.5 * best) round(c, std::max(20, stage_.copies()), 5);
  }

 private:
  static constexpr std::int64_t kSample = 1 << 16;  // elements of an output

  std::int64_t sampled(std::size_t o) const {
    const PlanTensor& t = plan_.tensors[static_cast<std::size_t>(layer_.out[o].tensor)];
    return std::clamp<std::int64_t>(element_count(t.dims) - layer_.out[o].offset, 0, kSample);
  }
  void clear_outputs() {
    for (std::size_t o = 0; o < layer_.out.size(); ++o) {
      const PlanTensor& t = plan_.tensors[static_cast<std::size_t>(layer_.out[o].tensor)];
      fill_device(stage_.at(0).out[o], 0, sampled(o) * size_of(t.dtype));
    }
  }
  // The first elements of each output, in units of 1 / 50 of its largest (E4M3, whose codes are coarse: 1 /
  // 10), so that results of two tactics that are both right differ by less than 1. Codes may be two off.
  std::vector<float> sample() {
    std::vector<float> all;
    for (std::size_t o = 0; o < layer_.out.size(); ++o) {
      const PlanTensor& t = plan_.tensors[static_cast<std::size_t>(layer_.out[o].tensor)];
      const std::int64_t count = sampled(o);
      if (count == 0) continue;
      Tensor raw = Tensor::allocate(t.dtype, {count});
      PARE_CU(cuMemcpyDtoH(raw.mut<void>(), stage_.at(0).out[o], static_cast<std::size_t>(raw.bytes())));
      std::vector<float> values(static_cast<std::size_t>(count));
      convert(raw.view(), TensorView{DType::kF32, raw.dims(), values.data()});
      float most = is_float(t.dtype) ? 1e-6f : 127.0f;
      for (const float v : values)
        if (std::isfinite(v)) most = std::max(most, std::fabs(v));
      const float unit = most / (t.dtype == DType::kE4M3FN ? 10.0f : 50.0f);
      for (const float v : values) all.push_back(v / unit);
    }
    return all;
  }
  // What differs from the results that most tactics give on the same operands is wrong, however fast.
  static void drop_outliers(std::vector<Candidate>& candidates) {
    std::vector<TacticSample> samples;
    std::vector<Candidate*> sampled;
    for (Candidate& c : candidates) {
      if (!c.failed.empty()) continue;
      samples.push_back({c.tactic->name(), std::move(c.sample)});
      sampled.push_back(&c);
    }
    const std::vector<std::string> wrong = judge(samples);
    for (std::size_t i = 0; i < sampled.size(); ++i) {
      if (wrong[i].empty()) continue;
      sampled[i]->failed = wrong[i];
      sampled[i]->us = INFINITY;
    }
  }

  void round(Candidate& c, int launches, int repeats) {
    if (!c.failed.empty()) return;
    const CUstream stream = Device::get().stream();
    try {
      c.tactic->launch(stream, stage_.at(0));  // libraries set themselves up outside of the capture
      PARE_CU(cuStreamSynchronize(stream));
      const CapturedGraph graph(stream, [&] {
        for (int i = 0; i < launches; ++i) c.tactic->launch(stream, stage_.at(i));
      });
      graph.launch(stream);
      std::vector<double> us;
      for (int i = 0; i < repeats; ++i) {
        Event begin, end;
        begin.record(stream);
        graph.launch(stream);
        end.record(stream);
        us.push_back(static_cast<double>(end.since(begin)) * 1000 / launches);
      }
      std::sort(us.begin(), us.end());
      c.us = us[us.size() / 2];
    } catch (const Error& error) {
      c.failed = error.what();
      c.us = INFINITY;
    }
  }

  const EnginePlan& plan_;
  const PlanLayer& layer_;
  Stage stage_;
  DeviceMemory workspace_, counters_;
};

std::unique_ptr<Tactic> library_tactic(const EnginePlan& plan, const PlanLayer& layer,
                                       const std::string& name, std::string& why) {
  auto found = group_of(name) == "cublaslt" ? lt_tactics(plan, layer, name, 1, why)
               : group_of(name) == "split"  ? split_tactics(plan, layer, name, 1, why)
                                            : cudnn_tactics(plan, layer, name, 1, why);
  return found.empty() ? nullptr : std::move(found[0]);
}

bool is_library(const std::string& name) {
  return group_of(name) == "cublaslt" || group_of(name) == "cudnn" || group_of(name) == "split";
}

}  // namespace

std::string layer_key(const EnginePlan& plan, const PlanLayer& layer) {
  std::string text = fmt::format("{} {} {} {}", name(layer.kind), layer.op, layer.epsilon, layer.nan_zero);
  if (copies_codes(layer)) text += fmt::format(" copy{}", layer.copy_zero == 0);
  for (const auto* views : {&layer.in, &layer.out})
    for (const PlanView& view : *views) {
      if (!view.present()) {
        text += " -";
        continue;
      }
      const PlanTensor& t = plan.tensors[static_cast<std::size_t>(view.tensor)];
      text += fmt::format(" {}{}{}{}{}", name(t.dtype), to_string(view.dims), to_string(view.strides),
                          view.offset % 64, t.role == PlanRole::kWeight ? "w" : "");
    }
  const ConvGeometry& g = layer.conv;
  text += fmt::format(" c{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", g.n, g.h, g.w, g.c, g.oh, g.ow,
                      g.m, g.kh, g.kw, g.group, g.sh, g.sw, g.dh, g.dw, g.top, g.left);
  if (has_shortcut(layer)) {
    const Shortcut& s = layer.shortcut;
    const ConvGeometry& c = s.conv;
    text += fmt::format(" s{},{},{},{},{},{},{},{},{},{},{}", c.n, c.h, c.w, c.c, c.oh, c.ow, c.m, c.sh, c.sw,
                        name(s.type), s.y_zero == 0);
  }
  const Epilogue& e = layer.epilogue;
  text += fmt::format(" e{},{},{},{},{},{},{},{},{}", e.alpha, e.r_scale == 1, e.y_scale == 1, e.y_zero == 0,
                      static_cast<int>(e.act.kind), e.act.lo, e.act.hi, e.act.alpha, e.act.beta);
  for (const ProgramLeaf& l : layer.program.leaves)
    text += fmt::format(" l{},{},{},{},{},{},{}", l.input, l.range_axis, l.lo, l.hi, l.index, l.index_stride,
                        l.index_rows);
  for (const auto* steps : {&layer.program.steps, &layer.post})
    for (const ProgramStep& s : *steps) {
      text += fmt::format(" {} {} {} {} {}", s.op, s.n, s.op == "const" ? 0 : s.x, s.y, s.z);
      for (const int a : s.args) text += fmt::format(",{}", a);
    }
  if (plan.precision == "tf32") text += " tf32";
  return hex(sha256(text)).substr(0, 32);
}

TuneReport tune(EnginePlan& plan, const TuneOptions& options) {
  TuneReport report;
  const auto log = [&](const std::string& text) {
    if (options.log) options.log(text);
  };
  const auto allowed = [&](const std::string& tactic) {
    return options.only.empty() || std::any_of(options.only.begin(), options.only.end(),
                                               [&](const std::string& p) { return tactic.rfind(p, 0) == 0; });
  };
  const std::string& architecture = target();
  std::string versions = Device::get().facts().name + " ";
  {
    int a = 0, b = 0;
    nvrtc_version(a, b);
    versions += fmt::format("nvrtc {}.{} ", a, b);
    try {
      versions += fmt::format("cublaslt {} ", lt().cublasLtGetVersion());
    } catch (const Error&) {
    }
    try {
      versions += fmt::format("cudnn {} ", cudnn().cudnnGetVersion());
    } catch (const Error&) {
    }
  }
  std::string kernel_versions;
  {
    int a = 0, b = 0;
    nvrtc_version(a, b);
    kernel_versions =
        fmt::format(" nvrtc {}.{} {} {}", a, b, architecture, hex(sha256(prelude())).substr(0, 16));
  }
  // Machine code that need not be made: the plan's own, or what an earlier build left in the cache.
  const auto known = [&](const std::string& hash) {
    const Tensor* given = given_binary(plan, hash);
    return given != nullptr ? given : options.cache->kernel(hash + kernel_versions);
  };
  std::string only;
  for (const std::string& o : options.only) only += o + ",";
  std::map<std::string, std::vector<std::size_t>> equal;  // key -> layers
  std::vector<std::string> order;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const std::string key = layer_key(plan, plan.layers[i]) + " " + only + versions + architecture;
    if (equal.count(key) == 0) order.push_back(key);
    equal[key].push_back(i);
  }
  // Texts of everything that may have to be compiled: all candidates of uncached layers, the chosen one of
  // the others.
  std::map<std::string, std::vector<KernelSource>> sources;
  std::vector<std::string> codes;
  const bool portable = !portable_architectures(plan).empty();  // nothing is compiled
  for (const std::string& key : order) {
    const PlanLayer& layer = plan.layers[equal[key][0]];
    const auto* cached = options.cache->find(key);
    if (cached == nullptr && options.require_cached)
      throw make_error(ErrorCode::kUnsupported, "layer '{}' is not in the timing cache", layer.name)
          .hint("build once without --require-cached-tactics");
    if (cached != nullptr && !cached->empty() && is_library((*cached)[0].tactic)) continue;
    std::string why;
    for (KernelSource& s : generated_kernels(plan, layer, why)) {
      if (cached != nullptr && !cached->empty() && s.tactic != (*cached)[0].tactic) continue;
      if (cached == nullptr && !allowed(s.tactic)) continue;
      if (cached == nullptr && s.tactic == "plain" && !sources[key].empty())
        continue;  // the last resort only
      if (cached == nullptr && s.tactic == "attention:plain" && !sources[key].empty()) continue;
      const bool given = known(source_hash(s.code)) != nullptr;
      if (portable && !given) continue;
      if (!given) codes.push_back(s.code);
      sources[key].push_back(std::move(s));
    }
    if (!why.empty()) report.declined.push_back(layer.name + ":" + why);
  }
  const int jobs =
      options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const Compiled compiled = compile_all(codes, architecture, jobs);
  report.compiled = static_cast<int>(compiled.binaries.size());
  report.compile_seconds = compiled.seconds;
  for (const std::string& code : codes) {
    const auto failed = compiled.failed.find(source_hash(code));
    if (failed == compiled.failed.end()) continue;
    report.declined.push_back(compile_failure(prelude() + code, failed->first, failed->second));
  }
  log(fmt::format("{} kernels compiled in {:.1f} s", report.compiled, report.compile_seconds));

  const auto start = std::chrono::steady_clock::now();
  double library_seconds = 0;     // making what libraries offer
  std::vector<std::string> late;  // the chosen kernel of layers that are like a timed one but for constants
  const bool rotate = plan.weight_bytes > Device::get().facts().l2_bytes / 2;
  for (const std::string& key : order) {
    const std::vector<std::size_t>& layers = equal[key];
    const PlanLayer& first = plan.layers[layers[0]];
    const auto* cached = options.cache->find(key);
    std::vector<Candidate> candidates;
    const auto generated = [&](const KernelSource& s) {
      const std::string hash = source_hash(s.code);
      const auto binary = compiled.binaries.find(hash);
      const Tensor* given = binary == compiled.binaries.end() ? known(hash) : &binary->second;
      if (given == nullptr) return;
      Candidate c;
      try {
        c.tactic = make_generated(s, *given);
      } catch (const Error& error) {
        report.declined.push_back(first.name + ": " + s.tactic + ": " + error.what());
        return;
      }
      candidates.push_back(std::move(c));
    };
    if (cached != nullptr && !cached->empty()) {
      ++report.from_cache;
      std::string why;
      for (const TimingCache::Entry& entry : *cached) {
        Candidate c;
        if (is_library(entry.tactic)) {
          c.tactic = library_tactic(plan, first, entry.tactic, why);
          if (c.tactic != nullptr) candidates.push_back(std::move(c));
        } else {
          for (const KernelSource& s : sources[key])
            if (s.tactic == entry.tactic) generated(s);
        }
        if (candidates.empty()) continue;
        candidates[0].us = entry.microseconds;
        break;
      }
    } else {
      for (const KernelSource& s : sources[key]) generated(s);
      std::string why;
      const auto asked = std::chrono::steady_clock::now();
      if (allowed("cublaslt"))
        for (auto& t : lt_tactics(plan, first, "", 8, why))
          candidates.push_back({std::move(t), INFINITY, "", {}});
      if (!why.empty()) report.declined.push_back(first.name + ": cublaslt: " + why);
      why.clear();
      if (allowed("split"))
        for (auto& t : split_tactics(plan, first, "", 4, why))
          candidates.push_back({std::move(t), INFINITY, "", {}});
      why.clear();
      if (allowed("cudnn"))
        for (auto& t : cudnn_tactics(plan, first, "", 4, why))
          candidates.push_back({std::move(t), INFINITY, "", {}});
      if (!why.empty()) report.declined.push_back(first.name + ": cudnn: " + why);
      library_seconds += seconds_since(asked);
      if (!candidates.empty()) {
        LayerTimer(plan, first, rotate).time(candidates);
        ++report.timed;
      }
      for (const Candidate& c : candidates)
        if (!c.failed.empty())
          report.declined.push_back(first.name + ": " + c.tactic->name() + ": " + c.failed);
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
      while (!candidates.empty() && !std::isfinite(candidates.back().us)) candidates.pop_back();
      if (candidates.size() > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i < candidates.size() && candidates[i].us <= candidates[0].us * 1.02; ++i)
          if (candidates[i].tactic->workspace() < candidates[best].tactic->workspace()) best = i;
        std::swap(candidates[0], candidates[best]);
      }
      std::string line = fmt::format("{} ({} layers):", first.name, layers.size());
      for (std::size_t i = 0; i < candidates.size() && i < 6; ++i)
        line += fmt::format("{} {} {:.2f}", i == 0 ? "" : ",", short_name(candidates[i].tactic->name()),
                            candidates[i].us);
      log(line);
      std::vector<TimingCache::Entry> entries;
      for (const Candidate& c : candidates) {
        if (entries.size() == 8) break;
        TimingCache::Entry entry;
        entry.tactic = c.tactic->name();
        entry.microseconds = c.us;
        entries.push_back(std::move(entry));
      }
      options.cache->put(key, std::move(entries));
    }
    if (candidates.empty()) {
      std::string why;
      for (const std::string& line : report.declined)
        if (line.rfind(first.name, 0) == 0) why += "\n  " + line;
      throw make_error(ErrorCode::kUnsupported, "no tactic runs layer '{}' ({}):{}", first.name,
                       name(first.kind), why);
    }
    const Tactic& winner = *candidates[0].tactic;
    for (const std::size_t i : layers) {
      PlanLayer& layer = plan.layers[i];
      layer.tactic = winner.name();
      layer.microseconds = candidates[0].us;
      layer.workspace = winner.workspace();
      layer.kernels = winner.kernels();
      layer.realized = winner.realized(plan, layer);
      if (group_of(winner.name()) == "split") {
        std::string why;
        SplitKernel kernel;
        split_tactics(plan, layer, winner.name(), 1, why, &kernel);
        plan.binaries[kernel.hash] = kernel.binary;
      }
      if (is_library(winner.name())) continue;
      // Equal layers may still differ in constants of their text (scales): each has its own code.
      std::string why;
      for (const KernelSource& s : generated_kernels(plan, layer, why)) {
        if (s.tactic != winner.name()) continue;
        const std::string hash = source_hash(s.code);
        if (plan.binaries.count(hash) != 0) continue;
        const auto binary = compiled.binaries.find(hash);
        const Tensor* given = binary == compiled.binaries.end() ? known(hash) : &binary->second;
        if (given != nullptr)
          plan.binaries[hash] = *given;
        else
          late.push_back(s.code);
      }
    }
  }
  const Compiled more = compile_all(late, architecture, jobs);
  for (const auto& [hash, why] : more.failed)
    fail(ErrorCode::kDevice, "a generated kernel does not compile: {}", why.substr(0, 2000));
  for (const auto& [hash, binary] : more.binaries) plan.binaries[hash] = binary;
  report.compiled += static_cast<int>(more.binaries.size());
  report.compile_seconds += more.seconds;
  log(fmt::format("{} more compiled in {:.1f} s; {:.1f} s to make what libraries offer", more.binaries.size(),
                  more.seconds, library_seconds));
  if (!portable)
    for (const auto& [hash, code] : plan.binaries) options.cache->put_kernel(hash + kernel_versions, code);
  report.timing_seconds = seconds_since(start) - more.seconds;
  return report;
}

std::unique_ptr<Tactic> chosen_tactic(const EnginePlan& plan, const PlanLayer& layer) {
  std::string why;
  if (is_library(layer.tactic)) {
    auto tactic = library_tactic(plan, layer, layer.tactic, why);
    if (tactic != nullptr) return tactic;
  } else {
    for (const KernelSource& s : generated_kernels(plan, layer, why)) {
      if (s.tactic != layer.tactic) continue;
      const auto binary = plan.binaries.find(source_hash(s.code));
      if (binary != plan.binaries.end()) return make_generated(s, binary->second);
      const std::string code = compile(s.code, target());
      return make_generated(
          s, Tensor::copy_of(DType::kU8, {static_cast<std::int64_t>(code.size())}, code.data(), code.size()));
    }
  }
  throw make_error(ErrorCode::kUnsupported,
                   "layer '{}' was built with tactic '{}', which is not to be had here {}", layer.name,
                   layer.tactic, why)
      .hint("build the engine again on this machine");
}

CompileReport compile_portable(EnginePlan& plan, const std::vector<std::string>& architectures, int jobs) {
  constexpr std::size_t kMostTactics = 6;  // of a layer: the likeliest, of which one is timed to be the best
  CompileReport report;
  const auto start = std::chrono::steady_clock::now();
  std::map<std::string, std::vector<std::string>> codes;  // by architecture
  for (const PlanLayer& layer : plan.layers) {
    std::string why;
    std::map<std::string, std::size_t> taken;
    for (const KernelSource& s : generated_kernels(plan, layer, why)) {
      const std::string group = group_of(s.tactic);
      const bool last_resort = s.tactic == "plain" || s.tactic == "attention:plain";
      for (const std::string& architecture : architectures) {
        const bool hopper = architecture.rfind("sm_90", 0) == 0;
        if (!hopper &&
            (group == "wgmma" || group == "pingpong" || group == "window" || group == "shared_tile"))
          continue;  // instructions of sm_90a
        std::size_t& count = taken[architecture];
        if (count >= kMostTactics || (last_resort && count > 0)) continue;
        ++count;
        codes[architecture].push_back(s.code);
      }
    }
  }
  for (const auto& [architecture, list] : codes) {
    const Compiled compiled =
        compile_all(list, architecture,
                    jobs > 0 ? jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    for (const auto& [hash, binary] : compiled.binaries) plan.binaries[architecture + "/" + hash] = binary;
    report.kernels += static_cast<int>(compiled.binaries.size());
    std::set<std::string> said;
    for (const std::string& code : list) {
      const auto failed = compiled.failed.find(source_hash(code));
      if (failed == compiled.failed.end() || !said.insert(failed->first).second) continue;
      report.failed.push_back(architecture + ": " +
                              compile_failure(prelude() + code, failed->first, failed->second));
    }
  }
  report.seconds = seconds_since(start);
  return report;
}

void adopt(EnginePlan& plan, const EnginePlan& tuned) {
  std::map<std::string, const PlanLayer*> known;
  for (const PlanLayer& layer : tuned.layers) known[name(layer.kind) + (" " + layer.name)] = &layer;
  std::vector<KernelSource> chosen(plan.layers.size());
  std::vector<std::string> codes;
  std::string why;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    PlanLayer& layer = plan.layers[i];
    const auto old = known.find(name(layer.kind) + (" " + layer.name));
    layer.tactic = old == known.end() ? "" : old->second->tactic;
    layer.microseconds = 0;
    if (is_library(layer.tactic)) {
      const auto tactic = library_tactic(plan, layer, layer.tactic, why);
      if (tactic != nullptr) {
        layer.workspace = tactic->workspace();
        layer.kernels = tactic->kernels();
        layer.realized = tactic->realized(plan, layer);
        SplitKernel kernel;
        if (group_of(layer.tactic) == "split" &&
            !split_tactics(plan, layer, layer.tactic, 1, why, &kernel).empty())
          plan.binaries[kernel.hash] = kernel.binary;
        continue;
      }
    }
    std::vector<KernelSource> sources = generated_kernels(plan, layer, why);
    if (sources.empty())
      throw make_error(ErrorCode::kUnsupported, "no tactic runs layer '{}' ({}) at this shape: {}",
                       layer.name, name(layer.kind), why);
    std::size_t at = 0;
    for (std::size_t s = 0; s < sources.size(); ++s)
      if (sources[s].tactic == layer.tactic) at = s;
    chosen[i] = std::move(sources[at]);
    codes.push_back(chosen[i].code);
  }
  std::vector<std::string> missing;
  for (const std::string& code : codes)
    if (plan.binaries.count(source_hash(code)) == 0) missing.push_back(code);
  const Compiled compiled =
      compile_all(missing, target(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  plan.binaries.insert(compiled.binaries.begin(), compiled.binaries.end());
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (chosen[i].code.empty()) continue;
    PlanLayer& layer = plan.layers[i];
    const std::string hash = source_hash(chosen[i].code);
    if (plan.binaries.count(hash) == 0)
      fail(ErrorCode::kDevice, "the kernel of layer '{}' at this shape does not compile: {}", layer.name,
           compiled.failed.at(hash));
    const auto tactic = make_generated(chosen[i], plan.binaries.at(hash));
    layer.tactic = tactic->name();
    layer.workspace = tactic->workspace();
    layer.kernels = tactic->kernels();
    layer.realized = tactic->realized(plan, layer);
  }
}

}  // namespace pare::cuda
