#include "engine/build/profile.h"

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/ir/schema.h"

namespace pare {
namespace {

constexpr std::int64_t kMostSize = 1 << 30;

const ProfileDim* find(const ShapeProfile& profile, const std::string& name) {
  for (const ProfileDim& d : profile)
    if (d.name == name) return &d;
  return nullptr;
}

std::string name_of(const Value& input, std::size_t axis) {
  const Dim& d = input.shape.dims[axis];
  return d.symbol.empty() ? fmt::format("{}.{}", input.name, axis) : d.symbol;
}

}  // namespace

ProfileDim parse_profile(const std::string& text) {
  ProfileDim d;
  const auto refuse = [&] {
    throw make_error(ErrorCode::kUsage,
                     "'{}' is not of the form NAME=MINxOPTxMAX with 1 <= MIN <= OPT <= MAX", text)
        .at("--profile")
        .hint("--profile batch=1x8x32");
  };
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) refuse();
  d.name = text.substr(0, equals);
  std::vector<std::int64_t> numbers;
  for (std::size_t begin = equals + 1; begin <= text.size();) {
    std::size_t end = text.find('x', begin);
    if (end == std::string::npos) end = text.size();
    const std::string number = text.substr(begin, end - begin);
    if (number.empty() || number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos)
      refuse();
    numbers.push_back(std::stoll(number));
    begin = end + 1;
  }
  if (numbers.size() != 3 || numbers[0] < 1 || numbers[1] < numbers[0] || numbers[2] < numbers[1]) refuse();
  d.min = numbers[0], d.opt = numbers[1], d.max = numbers[2];
  return d;
}

Json profile_json(const ShapeProfile& profile) {
  Json list = Json::array();
  for (const ProfileDim& d : profile)
    list.push_back({{"name", d.name}, {"min", d.min}, {"opt", d.opt}, {"max", d.max}});
  return list;
}

ShapeProfile read_profile(const Json& list, const std::string& what) {
  ShapeProfile profile;
  for (const Json& row : list) {
    ProfileDim d;
    d.name = json_string(row, "name", what);
    d.min = json_int(row, "min", what), d.opt = json_int(row, "opt", what),
    d.max = json_int(row, "max", what);
    if (d.min < 1 || d.opt < d.min || d.max < d.opt || d.max > kMostSize || find(profile, d.name) != nullptr)
      throw make_error(ErrorCode::kBadFile, "the profile of '{}' is out of order", d.name).at(what);
    profile.push_back(std::move(d));
  }
  return profile;
}

std::string to_string(const ShapeProfile& profile) {
  std::string text;
  for (const ProfileDim& d : profile)
    text += fmt::format("{}{} {}..{} ({})", text.empty() ? "" : ", ", d.name, d.min, d.max, d.opt);
  return text;
}

NamedSizes sizes_at(const ShapeProfile& profile, ProfilePoint point) {
  NamedSizes sizes;
  for (const ProfileDim& d : profile)
    sizes[d.name] = point == ProfilePoint::kMin ? d.min : point == ProfilePoint::kOpt ? d.opt : d.max;
  return sizes;
}

Graph open_sizes(const Graph& source, std::int64_t batch, const InputShapes& given,
                 const ShapeProfile& profile) {
  Graph graph = source;
  for (const auto& [input, dims] : given) {
    const ValueId id = graph.find_value(input);
    if (id == ValueId::kNone || !graph.is_input(id))
      throw make_error(ErrorCode::kUsage, "the model has no input '{}'", input)
          .at("--input-shape")
          .hint("`pare inspect MODEL` lists its inputs");
    if (!graph.value(id).shape.fits(dims))
      throw make_error(ErrorCode::kUsage, "input '{}' is {}, which {} does not fit", input,
                       to_string(graph.value(id).shape), to_string(dims))
          .hint("give the sizes that the model fixes, and numbers for those it leaves open");
    graph.value(id).shape = Shape(dims);
  }
  std::map<std::string, bool> named;
  std::string open;
  for (const ValueId id : graph.inputs) {
    Value& value = graph.value(id);
    for (std::size_t i = 0; i < value.shape.dims.size(); ++i) {
      Dim& d = value.shape.dims[i];
      if (d.known()) continue;
      const std::string name = name_of(value, i);
      open += (open.empty() ? "" : ", ") + name;
      if (find(profile, name) != nullptr) {
        d = Dim::named(name);
        named[name] = true;
        continue;
      }
      if (i != 0)
        throw make_error(ErrorCode::kUsage, "the size of input '{}' {} is open", value.name,
                         to_string(value.shape))
            .hint(fmt::format("give it with --input-shape NAME=1x3x224x224, or --profile {}=MINxOPTxMAX",
                              name));
      d = Dim::of(batch);
    }
  }
  for (const ProfileDim& d : profile)
    if (named.count(d.name) == 0)
      throw make_error(ErrorCode::kUsage, "no input has an open dimension '{}'", d.name)
          .at("--profile")
          .hint(open.empty() ? "all sizes of this model are fixed; `pare surgeon set-shape` opens them"
                             : "open are: " + open);
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    Value& value = graph.value(static_cast<ValueId>(i));
    if (!value.is_constant() && value.producer != NodeId::kNone) value.shape = Shape();
  }
  infer_shapes(graph);
  return graph;
}

Graph fix_sizes(const Graph& graph, std::int64_t batch, const InputShapes& given) {
  return open_sizes(graph, batch, given, {});
}

InputShapes shapes_at(const Graph& open, const NamedSizes& sizes) {
  InputShapes shapes;
  for (const ValueId id : open.inputs) {
    const Value& value = open.value(id);
    Dims dims;
    for (const Dim& d : value.shape.dims) {
      const auto size = sizes.find(d.symbol);
      if (!d.known() && size == sizes.end())
        throw make_error(ErrorCode::kUsage, "the size '{}' of input '{}' is open", to_string(d), value.name)
            .hint("give its shape with --input-shape, or sizes with --profile");
      dims.push_back(d.known() ? d.value : size->second);
    }
    shapes.emplace_back(value.name, std::move(dims));
  }
  return shapes;
}

NamedSizes sizes_of(const Graph& open, const ShapeProfile& profile, const std::vector<Dims>& inputs) {
  if (inputs.size() != open.inputs.size())
    throw make_error(ErrorCode::kUsage, "the engine has {} inputs, {} were given", open.inputs.size(),
                     inputs.size())
        .hint("`pare inspect ENGINE` lists its inputs");
  NamedSizes sizes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = open.value(open.inputs[i]);
    const auto refuse = [&](const std::string& why) {
      throw make_error(ErrorCode::kUsage, "input '{}' is {}, the engine takes {}{}", value.name,
                       to_string(inputs[i]), to_string(value.shape), why)
          .hint("build an engine with a wider profile: --profile NAME=MINxOPTxMAX");
    };
    if (!value.shape.fits(inputs[i])) refuse("");
    for (std::size_t d = 0; d < inputs[i].size() && d < value.shape.dims.size(); ++d) {
      const std::string& symbol = value.shape.dims[d].symbol;
      const ProfileDim* range = find(profile, symbol);
      if (value.shape.dims[d].known() || range == nullptr) continue;
      const std::int64_t size = inputs[i][d];
      if (size < range->min || size > range->max)
        refuse(fmt::format(": '{}' is {}, its profile has {} to {}", symbol, size, range->min, range->max));
      const auto [it, is_first] = sizes.emplace(symbol, size);
      if (!is_first && it->second != size)
        refuse(fmt::format(": '{}' is {} here and {} in an input before", symbol, size, it->second));
    }
  }
  return sizes;
}

}  // namespace pare
