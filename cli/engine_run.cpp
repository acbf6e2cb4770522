#include "cli/engine_run.h"

#include "datasets/dataset.h"
#include "datasets/npy.h"
#include "engine/base/error.h"
#include "engine/base/json.h"

namespace pare {

OpenEngine open_engine(Context& context, const std::string& path) {
  OpenEngine engine;
  engine.file = read_engine(path);
  EngineBackend& backend = cuda_backend();
  const DeviceFacts facts = backend.facts();
  const EngineProvenance& p = engine.file.provenance;
  if (p.architecture != facts.architecture)
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
  engine.runner = with_context("loading '" + path + "'", [&] { return backend.load(engine.file.plan); });
  return engine;
}

std::string device_text(const DeviceFacts& facts) {
  return fmt::format("cuda ({}, {})", facts.name, facts.architecture);
}

Json engine_layers(const EnginePlan& plan) {
  Json list = Json::array();
  for (const PlanLayer& l : plan.layers)
    list.push_back({{"name", l.name},
                    {"kind", name(l.kind)},
                    {"nodes", l.nodes.size()},
                    {"requested", l.requested},
                    {"realized", l.realized},
                    {"kernel", l.tactic},
                    {"why", l.why},
                    {"median_us", json_number(l.microseconds)}});
  return list;
}

std::vector<Tensor> engine_inputs(const EnginePlan& plan, const std::vector<std::string>& given) {
  std::vector<Tensor> feed(plan.inputs.size());
  std::vector<const char*> names;
  for (const int id : plan.inputs) names.push_back(plan.tensors[static_cast<std::size_t>(id)].name.c_str());
  for (const std::string& text : given) {
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw make_error(ErrorCode::kUsage, "'{}' is not of the form NAME=FILE.npy", text).at("--input");
    const std::string wanted = text.substr(0, equals);
    std::size_t index = 0;
    while (index < names.size() && names[index] != wanted) ++index;
    if (index == names.size()) {
      const std::string near = nearest_word(wanted, names.data(), names.size());
      throw make_error(ErrorCode::kUsage, "the engine has no input '{}'", wanted)
          .at("--input")
          .hint(near.empty() ? "`pare inspect` lists them" : fmt::format("did you mean '{}'?", near));
    }
    feed[index] = read_npy(text.substr(equals + 1));
  }
  for (std::size_t i = 0; i < feed.size(); ++i)
    if (feed[i].empty())
      throw make_error(ErrorCode::kUsage, "no array for input '{}'", names[i])
          .hint(fmt::format("add --input {}=FILE.npy", names[i]));
  return feed;
}

std::vector<Tensor> random_engine_inputs(const EnginePlan& plan, std::uint64_t seed) {
  std::vector<InputSpec> specs;
  std::int64_t batch = 1;
  for (const int id : plan.inputs) {
    const PlanTensor& t = plan.tensors[static_cast<std::size_t>(id)];
    InputSpec spec;
    spec.name = t.name;
    spec.dtype = t.dtype;
    spec.shape = Shape(t.dims);
    specs.push_back(std::move(spec));
    if (!t.dims.empty()) batch = t.dims[0];
  }
  return synthetic_inputs(specs, batch, {}, seed);
}

std::pair<std::string, Dims> parse_input_shape(const std::string& text) {
  const auto refuse = [&] {
    throw make_error(ErrorCode::kUsage, "'{}' is not of the form NAME=1x3x224x224", text).at("--input-shape");
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
