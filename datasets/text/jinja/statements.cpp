#include <algorithm>

#include "datasets/text/jinja/interpreter.h"

namespace pare::jinja {
namespace {

// A dialogue of a hundred messages takes some ten thousand steps and a megabyte.
constexpr std::size_t kMostSteps = 2'000'000, kMostBytes = std::size_t{1} << 28;
constexpr int kMostDepth = 600;  // calls of eval and run_node inside each other: below 1 MB of stack

}  // namespace

void Scope::set(const std::string& name, Value value) {
  for (auto& [known, old] : names)
    if (known == name) {
      old = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
    for (const auto& [known, value] : scope->names)
      if (known == name) return &value;
  return nullptr;
}

const Value* Arguments::get(std::size_t place, const char* name) const {
  if (place < places.size()) return &places[place];
  for (const auto& [known, value] : named)
    if (known == name) return &value;
  return nullptr;
}

Interpreter::Deeper::Deeper(Interpreter& own, int line) : own_(own) {
  own.line_ = line;
  own.spend(0);
  if (++own.depth_ > kMostDepth) own.unknown("the template calls itself too deeply");
}

Interpreter::Interpreter(const std::string& where, const Surroundings& surroundings)
    : where_(where), surroundings_(surroundings) {}
Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) space->items.clear();
}

std::string Interpreter::run(const Body& body, const Dict& names) {
  scope_ = std::make_shared<Scope>();
  scope_->names = names.items;
  scope_ = std::make_shared<Scope>(Scope{{}, scope_});
  std::string out;
  run_body(body, out);
  return out;
}

void Interpreter::spend(std::size_t bytes) {
  bytes_ += bytes;
  if (++steps_ > kMostSteps || bytes_ > kMostBytes) unknown("the template takes too many steps");
}

void Interpreter::wrong(const std::string& what) const { refuse(ErrorCode::kUsage, where_, line_, what); }
void Interpreter::unknown(const std::string& what) const {
  refuse(ErrorCode::kUnsupported, where_, line_, what);
}

Value Interpreter::made(std::string text) {
  spend(text.size());
  return Value::text(std::move(text));
}

std::string Interpreter::render(const Body& body) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(Scope{{}, outer});
  std::string out;
  run_body(body, out);
  scope_ = outer;
  return out;
}

Interpreter::Flow Interpreter::run_body(const Body& body, std::string& out) {
  for (const NodePtr& node : body)
    if (const Flow flow = run_node(*node, out); flow != Flow::kOn) return flow;
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_node(const Node& node, std::string& out) {
  const Deeper guard(*this, node.line);
  const auto put = [&](const std::string& text) {
    spend(text.size());
    out += text;
  };
  switch (node.kind) {
    case NodeKind::kText:
      put(node.name);
      return Flow::kOn;
    case NodeKind::kOutput:
      put(to_text(eval(*node.args[0])));
      return Flow::kOn;
    case NodeKind::kIf:
      return run_body(truth(eval(*node.args[0])) ? node.body : node.otherwise, out);
    case NodeKind::kFor:
      return run_for(node, out);
    case NodeKind::kSet:
      assign(*node.args[0], eval(*node.args[1]));
      return Flow::kOn;
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock: {
      const bool set = node.kind == NodeKind::kSetBlock;
      Value value = Value::text(render(node.body));
      const Node* filters = node.args.back().get();
      if (filters != nullptr) {
        const std::shared_ptr<Scope> outer = scope_;
        scope_ = std::make_shared<Scope>(Scope{{{"", value}}, outer});  // a filter without a subject takes it
        value = eval(*filters);
        scope_ = outer;
      }
      if (set)
        assign(*node.args[0], value);
      else
        put(to_text(value));
      return Flow::kOn;
    }
    case NodeKind::kMacro: {
      auto macro = std::make_shared<Macro>();
      macro->node = &node;
      macro->scope = scope_;
      Value value;
      value.kind = Kind::kMacro;
      value.macro = std::move(macro);
      scope_->set(node.name, std::move(value));
      return Flow::kOn;
    }
    case NodeKind::kWith: {
      const std::shared_ptr<Scope> outer = scope_;
      auto inner = std::make_shared<Scope>(Scope{{}, outer});
      for (const auto& [name, value] : node.named) inner->set(name, eval(*value));
      scope_ = inner;
      const Flow flow = run_body(node.body, out);
      scope_ = outer;
      return flow;
    }
    case NodeKind::kBlock:
      put(render(node.body));
      return Flow::kOn;
    case NodeKind::kBreak:
      return Flow::kBreak;
    default:
      return Flow::kContinue;
  }
}

Interpreter::Flow Interpreter::run_for(const Node& node, std::string& out) {
  List all = items(eval(*node.args[1]));
  const std::shared_ptr<Scope> outer = scope_;
  if (node.args[2] != nullptr) {
    List kept;
    for (Value& value : all) {
      scope_ = std::make_shared<Scope>(Scope{{}, outer});
      assign(*node.args[0], value);
      if (truth(eval(*node.args[2]))) kept.push_back(std::move(value));
    }
    scope_ = outer;
    all = std::move(kept);
  }
  if (all.empty()) return run_body(node.otherwise, out);
  const auto shared = std::make_shared<const List>(std::move(all));
  ++loop_depth_;
  for (std::size_t i = 0; i < shared->size(); ++i) {
    scope_ = std::make_shared<Scope>(Scope{{}, outer});
    Value loop;
    loop.kind = Kind::kLoop;
    loop.loop = std::make_shared<const Loop>(Loop{shared, i, loop_depth_});
    scope_->set("loop", std::move(loop));
    assign(*node.args[0], (*shared)[i]);
    if (run_body(node.body, out) == Flow::kBreak) break;
  }
  --loop_depth_;
  scope_ = outer;
  return Flow::kOn;
}

void Interpreter::assign(const Node& target, const Value& value) {
  if (target.kind == NodeKind::kName) {
    scope_->set(target.name, value);
  } else if (target.kind == NodeKind::kAttribute) {
    const Value object = eval(*target.args[0]);
    if (!object.is(Kind::kNamespace)) wrong("only namespaces have attributes that can be set");
    object.dict->set(target.name, value);
  } else {
    const List parts = items(value);
    if (parts.size() != target.args.size())
      wrong(fmt::format("{} values for {} names", parts.size(), target.args.size()));
    for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.args[i], parts[i]);
  }
}

Value Interpreter::call_macro(const Node& node, const Value& macro, const Arguments& given) {
  const Node& own = *macro.macro->node;
  const std::shared_ptr<Scope> home = macro.macro->scope.lock();
  if (home == nullptr)
    unknown(fmt::format("the macro '{}' is called outside of where it was defined", own.name));
  if (given.places.size() > own.named.size())
    wrong(fmt::format("the macro '{}' takes no more than {} arguments", own.name, own.named.size()));
  for (const auto& [name, value] : given.named)
    if (std::none_of(own.named.begin(), own.named.end(), [&n = name](const auto& p) { return p.first == n; }))
      wrong(fmt::format("the macro '{}' takes no argument '{}'", own.name, name));
  const std::shared_ptr<Scope> caller = scope_;
  const std::int64_t loops = std::exchange(loop_depth_, 0);
  scope_ = std::make_shared<Scope>(Scope{{}, home});
  for (std::size_t i = 0; i < own.named.size(); ++i) {
    const auto& [name, otherwise] = own.named[i];
    const Value* value = given.get(i, name.c_str());
    if (value != nullptr)
      scope_->set(name, *value);
    else if (otherwise != nullptr)
      scope_->set(name, eval(*otherwise));
    else
      scope_->set(name, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
  }
  std::string out;
  run_body(own.body, out);
  scope_ = caller;
  loop_depth_ = loops;
  line_ = node.line;
  return made(std::move(out));
}

}  // namespace pare::jinja
