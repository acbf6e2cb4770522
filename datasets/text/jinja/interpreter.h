// Runs a template. What a template may cost is bounded: steps, bytes, depth. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datasets/text/jinja/syntax.h"

namespace pare::jinja {

struct Scope {
  std::vector<std::pair<std::string, Value>> names;
  std::shared_ptr<Scope> parent;
  void set(const std::string& name, Value value);
  const Value* find(const std::string& name) const;  // here or further out
};

// Of a call, a filter or a test.
struct Arguments {
  List places;
  std::vector<std::pair<std::string, Value>> named;
  // By place, else by name; null when it was not given.
  const Value* get(std::size_t place, const char* name) const;
};

struct Surroundings {
  std::optional<std::int64_t> now;  // for strftime_now; absent: there is no such function
};

class Interpreter {
 public:
  Interpreter(const std::string& where, const Surroundings& surroundings);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run(const Body& body, const Dict& names);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  // One level down, at a line; an Interpreter that threw is not used again.
  class Deeper {
   public:
    Deeper(Interpreter& own, int line);
    ~Deeper() { --own_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Interpreter& own_;
  };

  // statements.cpp
  Flow run_body(const Body& body, std::string& out);
  Flow run_node(const Node& node, std::string& out);
  Flow run_for(const Node& node, std::string& out);
  void assign(const Node& target, const Value& value);
  std::string render(const Body& body);
  Value call_macro(const Node& node, const Value& macro, const Arguments& arguments);

  // expressions.cpp
  Value eval(const Node& node);
  Value name_value(const Node& node);
  Value attribute(const Value& object, const std::string& name) const;
  Value item(const Value& object, const Value& key) const;
  Value slice(const Node& node);
  Value binary(const Node& node, const Value& a, const Value& b);
  bool compare_with(const Node& node, const std::string& word, const Value& a, const Value& b);
  bool contains(const Value& whole, const Value& part);
  Value call(const Node& node);
  Value call_function(const std::string& name, const Arguments& arguments);
  Arguments arguments(const Node& node);

  // methods.cpp, filters.cpp, tests.cpp
  Value call_method(const Value& object, const std::string& name, const Arguments& arguments);
  Value text_method(const std::string& text, const std::string& name, const Arguments& arguments);
  Value filter(const std::string& name, Value subject, const Arguments& arguments);
  Value text_filter(const std::string& name, const Value& subject, const Arguments& arguments, bool& known);
  Value list_filter(const std::string& name, const Value& subject, const Arguments& arguments, bool& known);
  Value select(const Value& subject, const Arguments& arguments, bool wanted, bool by_attribute);
  bool test(const std::string& name, const Value& subject, const Arguments& arguments);

  // What may be walked: items, characters, keys. `what` for the message.
  List items(const Value& value);
  Value attribute_path(const Value& object, const Value& path) const;
  const std::string& text_argument(const Arguments& a, std::size_t place, const char* name, const char* of);
  std::int64_t whole_argument(const Arguments& a, std::size_t place, const char* name,
                              std::int64_t otherwise) const;
  Value made(std::string text);  // a text, counted
  void spend(std::size_t bytes);
  [[noreturn]] void wrong(const std::string& what) const;    // the template and the messages do not fit
  [[noreturn]] void unknown(const std::string& what) const;  // outside of what is known

  const std::string& where_;
  const Surroundings& surroundings_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Dict>> namespaces_;  // emptied at the end: they may hold themselves
  int line_ = 1, depth_ = 0;
  std::int64_t loop_depth_ = 0;
  std::size_t steps_ = 0, bytes_ = 0;
};

}  // namespace pare::jinja
