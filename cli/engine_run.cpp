#include "cli/engine_run.h"

#include <chrono>

#include "datasets/npy.h"
#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/json.h"
#include "engine/build/choose_plan.h"
#include "engine/build/plan/memory_plan.h"
#include "recipes/build_stage.h"

namespace pare {

EngineDevice device_for(Context& context) {
  std::string why;
  const bool gpu = choose_device(context.options().device, why) != nullptr;
  if (!why.empty()) context.message(why);
  return gpu ? EngineDevice::kCuda : EngineDevice::kCpu;
}

namespace {

// A portable engine at home: tactics are timed here the first time, and kept beside the file for the next.
void tune_portable(Context& context, const std::string& path, EngineFile& file, EngineBackend& backend,
                   const DeviceFacts& facts) {
  if (portable_architecture(file.plan, facts.architecture).empty()) {
    std::string list;
    for (const std::string& name : portable_architectures(file.plan)) list += " " + name;
    throw make_error(ErrorCode::kUnsupported, "'{}' has kernels for{}, this is {} ({})", path, list,
                     facts.architecture, facts.name)
        .at(path)
        .hint(fmt::format("build it with --portable {}", facts.architecture));
  }
  const auto start = std::chrono::steady_clock::now();
  const std::string kept = path + ".tactics";
  TimingCache cache;
  try {
    cache = TimingCache::read(kept);
  } catch (const Error& error) {
    context.warn(fmt::format("{} is not used: {}", kept, error.what()));
  }
  TuneOptions how;
  how.cache = &cache;
  const TuneReport report = backend.tune(file.plan, how);
  plan_memory(file.plan);
  context.message(fmt::format(
      "portable engine: {} layers timed here, {} known from before, {:.2f} s", report.timed,
      report.from_cache, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  context.document()["first_load"] = {
      {"timed", report.timed},
      {"from_cache", report.from_cache},
      {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()}};
  if (report.timed == 0) return;
  try {
    cache.write(kept);
  } catch (const Error& error) {
    context.warn(
        fmt::format("the tactics timed here are lost, the next load times them again: {}", error.what()));
  }
}

}  // namespace

std::unique_ptr<Engine> open_engine(Context& context, const std::string& path) {
  EngineFile file = read_engine(path);
  const EngineProvenance& p = file.provenance;
  const std::string& asked = context.options().device;
  EngineOptions options;
  options.pool = &context.pool();
  options.clean = clean_graph;
  options.log = [&context](const std::string& text) { context.message(text); };
  if (file.is_cpu() != (asked == "cpu") && asked != "auto")
    throw make_error(ErrorCode::kUnsupported, "'{}' is an engine for {}, not for --device {}", path,
                     file.is_cpu() ? "the CPU" : p.device, asked)
        .at(path)
        .hint("build one with that --device");
  if (!file.is_cpu()) {
    EngineBackend& backend = cuda_backend();
    const DeviceFacts facts = backend.facts();
    if (p.architecture == "portable")
      tune_portable(context, path, file, backend, facts);
    else if (p.architecture != facts.architecture)
      throw make_error(ErrorCode::kUnsupported, "'{}' was built for {} ({}), this is {} ({})", path,
                       p.architecture, p.device, facts.architecture, facts.name)
          .at(path)
          .hint("build it on this machine");
    for (const auto& [library, version] : p.versions) {
      const auto here = facts.versions.find(library);
      if (library != "driver" && here != facts.versions.end() && here->second != version)
        context.warn(fmt::format("the engine was timed with {} {}, this machine has {}", library, version,
                                 here->second));
    }
    check_fits(file.plan, p.batch, facts.free_bytes);
    options.backend = &backend;
  }
  return with_context("loading '" + path + "'",
                      [&] { return std::make_unique<Engine>(std::move(file), options); });
}

std::string device_of(Context& context, const Engine& engine) {
  if (engine.file().is_cpu())
    return fmt::format("cpu ({}, {} threads)", pare::name(isa()), context.pool().threads());
  return device_text(cuda_backend().facts());
}

DeviceSessions::DeviceSessions(Context& context) {
  if (context.options().device.rfind("cuda", 0) != 0) return;
  EngineBackend& backend = cuda_backend();
  backend.facts();
  sessions_ = std::make_unique<EngineSessions>(backend);
  set_session_device(sessions_.get());
}

DeviceSessions::~DeviceSessions() {
  if (sessions_ != nullptr) set_session_device(nullptr);
}

void DeviceSessions::report(Context& context) const {
  if (sessions_ == nullptr) return;
  context.document()["device"] = device_text(cuda_backend().facts());
  context.document()["device_runs"] = sessions_->runs();
  for (const std::string& why : sessions_->declined())
    context.warn(
        fmt::format("a graph ran on the CPU, not on --device {}: {}", context.options().device, why));
}

std::string device_text(const DeviceFacts& facts) {
  return fmt::format("cuda ({}, {})", facts.name, facts.architecture);
}

std::vector<Tensor> input_arrays(const std::vector<WantedInput>& wanted, const char* whose,
                                 const std::vector<std::string>& given) {
  std::vector<Tensor> feed(wanted.size());
  std::vector<const char*> names;
  for (const WantedInput& input : wanted) names.push_back(input.name.c_str());
  for (const std::string& text : given) {
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw make_error(ErrorCode::kUsage, "'{}' is not of the form NAME=FILE.npy", text)
          .at("--input")
          .hint("`pare inspect MODEL` lists the inputs");
    const std::string name = text.substr(0, equals);
    std::size_t index = 0;
    while (index < names.size() && names[index] != name) ++index;
    if (index == names.size()) {
      const std::string near = nearest_word(name, names.data(), names.size());
      std::string hint = "its inputs:";
      for (const char* known : names) hint += fmt::format(" {}", known);
      throw make_error(ErrorCode::kUsage, "the {} has no input '{}'", whose, name)
          .at("--input")
          .hint(near.empty() ? hint : fmt::format("did you mean '{}'?", near));
    }
    feed[index] = read_npy(text.substr(equals + 1));
  }
  for (std::size_t i = 0; i < feed.size(); ++i)
    if (feed[i].empty())
      throw make_error(ErrorCode::kUsage, "no array for input '{}' ({} {})", names[i], name(wanted[i].dtype),
                       wanted[i].shape)
          .hint(fmt::format("add --input {}=FILE.npy", names[i]));
  return feed;
}

std::vector<Tensor> engine_inputs(const EnginePlan& plan, const std::vector<std::string>& given) {
  std::vector<WantedInput> wanted;
  for (const int id : plan.inputs) {
    const PlanTensor& t = plan.tensors[static_cast<std::size_t>(id)];
    wanted.push_back({t.name, t.dtype, to_string(t.dims)});
  }
  return input_arrays(wanted, "engine", given);
}

std::pair<std::string, Dims> parse_input_shape(const std::string& text) {
  const auto refuse = [&] {
    throw make_error(ErrorCode::kUsage, "'{}' is not of the form NAME=1x3x224x224", text)
        .at("--input-shape")
        .hint("`pare inspect MODEL` lists the inputs");
  };
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) refuse();
  Dims dims;
  for (std::size_t begin = equals + 1; begin <= text.size();) {
    std::size_t x = text.find('x', begin);
    if (x == std::string::npos) x = text.size();
    const std::string number = text.substr(begin, x - begin);
    if (number.empty() || number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos)
      refuse();
    dims.push_back(std::stoll(number));
    begin = x + 1;
  }
  return {text.substr(0, equals), dims};
}

}  // namespace pare
