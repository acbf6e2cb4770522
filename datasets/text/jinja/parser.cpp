// Tokens into a tree, with the rules of Jinja's own parser (jinja2/parser.py).
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "datasets/text/jinja/syntax.h"

namespace pare::jinja {
namespace {

constexpr int kMostDepth = 120;  // of a tree: no real template has more than 30

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where) : tokens_(std::move(tokens)), where_(where) {}

  Body run() {
    Body body = statements({});
    if (now().kind != Token::Kind::kEnd) bad("a tag that ends nothing");
    return body;
  }

 private:
  using TK = Token::Kind;

  // --- tokens

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(TK kind, std::string_view text) const { return now().kind == kind && now().text == text; }
  bool is_op(std::string_view text) const { return is(TK::kOperator, text); }
  bool is_word(std::string_view text) const { return is(TK::kName, text); }
  bool skip(TK kind, std::string_view text) {
    if (!is(kind, text)) return false;
    ++at_;
    return true;
  }
  bool skip_op(std::string_view text) { return skip(TK::kOperator, text); }
  bool skip_word(std::string_view text) { return skip(TK::kName, text); }
  void expect_op(std::string_view text) {
    if (!skip_op(text)) bad(fmt::format("'{}' is missing before '{}'", text, now().text));
  }
  std::string expect_name(const char* what) {
    if (now().kind != TK::kName) bad(fmt::format("{} is missing", what));
    return tokens_[at_++].text;
  }
  void block_end() {
    if (now().kind != TK::kBlockEnd) bad(fmt::format("'{}' is not expected in this tag", now().text));
    ++at_;
  }
  [[noreturn]] void bad(const std::string& what) const {
    refuse(ErrorCode::kBadFile, where_, now().line, what);
  }
  [[noreturn]] void unknown(const std::string& what) const {
    refuse(ErrorCode::kUnsupported, where_, now().line, what);
  }

  // --- nodes

  NodePtr node(NodeKind kind, std::string name = "") const {
    auto n = std::make_unique<Node>();
    n->kind = kind;
    n->line = now().line;
    n->name = std::move(name);
    return n;
  }
  // Every node comes through here when its children are there: loops make trees of any depth too.
  NodePtr done(NodePtr n) const {
    int depth = 0;
    const auto look = [&](const NodePtr& child) {
      if (child != nullptr) depth = std::max(depth, child->depth);
    };
    for (const NodePtr& child : n->args) look(child);
    for (const auto& [name, child] : n->named) look(child);
    for (const NodePtr& child : n->body) look(child);
    for (const NodePtr& child : n->otherwise) look(child);
    n->depth = depth + 1;
    check_depth(n->depth);
    return n;
  }
  void check_depth(int depth) const {
    if (depth > kMostDepth) unknown("the template is nested too deeply");
  }
  NodePtr with(NodeKind kind, std::string name, NodePtr a, NodePtr b = nullptr) const {
    NodePtr n = node(kind, std::move(name));
    n->args.push_back(std::move(a));
    if (b != nullptr) n->args.push_back(std::move(b));
    return done(std::move(n));
  }
  NodePtr literal(Value value) const {
    NodePtr n = node(NodeKind::kLiteral);
    n->literal = std::move(value);
    return n;
  }

  struct Nested {  // calls inside calls
    explicit Nested(Parser& p) : parser(p) { p.check_depth(++p.nested_); }
    ~Nested() { --parser.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Parser& parser;
  };

  // --- statements

  // Until a tag that begins with one of `ends`, whose word is then the next token.
  Body statements(const std::vector<std::string_view>& ends) {
    const Nested guard(*this);
    Body body;
    while (now().kind != TK::kEnd) {
      if (now().kind == TK::kText) {
        NodePtr n = node(NodeKind::kText, now().text);
        ++at_;
        body.push_back(std::move(n));
      } else if (now().kind == TK::kOutputBegin) {
        ++at_;
        NodePtr n = with(NodeKind::kOutput, "", tuple(true));
        if (now().kind != TK::kOutputEnd) bad(fmt::format("'{}' is not expected here", now().text));
        ++at_;
        body.push_back(std::move(n));
      } else {
        ++at_;  // block begin
        if (now().kind != TK::kName) bad("a tag has no name");
        if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return body;
        body.push_back(statement());
      }
    }
    if (!ends.empty()) bad(fmt::format("'{}' is missing", ends.back()));
    return body;
  }
  // The same, with the end tag read.
  Body block(std::string_view end) {
    block_end();
    Body body = statements({end});
    ++at_;
    block_end();
    return body;
  }

  NodePtr statement() {
    const std::string word = now().text;
    if (word == "if") return if_statement();
    if (word == "for") return for_statement();
    if (word == "set") return set_statement();
    if (word == "macro") return macro_statement();
    if (word == "with") return with_statement();
    if (word == "filter") {
      NodePtr n = node(NodeKind::kFilterBlock);
      ++at_;
      n->args.push_back(filters(nullptr, true));
      n->body = block("endfilter");
      return done(std::move(n));
    }
    if (word == "generation") {
      NodePtr n = node(NodeKind::kBlock);
      ++at_;
      n->body = block("endgeneration");
      return done(std::move(n));
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) bad(fmt::format("'{}' outside of a loop", word));
      NodePtr n = node(word == "break" ? NodeKind::kBreak : NodeKind::kContinue);
      ++at_;
      block_end();
      return n;
    }
    if (word.rfind("end", 0) == 0 || word == "else" || word == "elif")
      bad(fmt::format("'{}' ends nothing", word));
    unknown(fmt::format("the tag '{}' is not known", word));
  }

  NodePtr if_statement() {
    const Nested guard(*this);
    NodePtr n = node(NodeKind::kIf);
    ++at_;
    n->args.push_back(tuple(true));
    block_end();
    n->body = statements({"elif", "else", "endif"});
    if (is_word("elif")) {
      n->otherwise.push_back(if_statement());  // reads as far as endif
      return done(std::move(n));
    }
    if (skip_word("else")) {
      block_end();
      n->otherwise = statements({"endif"});
    }
    ++at_;
    block_end();
    return done(std::move(n));
  }

  NodePtr for_statement() {
    NodePtr n = node(NodeKind::kFor);
    ++at_;
    n->args.push_back(target(false));
    if (!skip_word("in")) bad("'in' is missing");
    n->args.push_back(tuple(false));
    n->args.push_back(skip_word("if") ? expression() : nullptr);
    if (is_word("recursive")) unknown("loops that call themselves (recursive) are not known");
    block_end();
    ++loops_;
    n->body = statements({"else", "endfor"});
    --loops_;
    if (skip_word("else")) {
      block_end();
      n->otherwise = statements({"endfor"});
    }
    ++at_;
    block_end();
    return done(std::move(n));
  }

  // a, or a, b, or ns.a
  NodePtr target(bool attributes) {
    const Nested guard(*this);
    std::vector<NodePtr> names;
    bool several = false;
    while (true) {
      if (skip_op("(")) {
        names.push_back(target(false));
        expect_op(")");
      } else {
        NodePtr name = node(NodeKind::kName);
        name->name = expect_name("a name");
        if (attributes && skip_op(".")) {
          NodePtr attribute = node(NodeKind::kAttribute);
          attribute->name = expect_name("a name");
          attribute->args.push_back(std::move(name));
          name = done(std::move(attribute));
        }
        names.push_back(std::move(name));
      }
      if (!skip_op(",")) break;
      several = true;
      if (now().kind != TK::kName && !is_op("(")) break;
      if (is_word("in")) break;
    }
    if (!several) return std::move(names[0]);
    NodePtr n = node(NodeKind::kTuple);
    n->args = std::move(names);
    return done(std::move(n));
  }

  NodePtr set_statement() {
    NodePtr n = node(NodeKind::kSet);
    ++at_;
    n->args.push_back(target(true));
    if (skip_op("=")) {
      n->args.push_back(tuple(true));
      block_end();
      return done(std::move(n));
    }
    n->kind = NodeKind::kSetBlock;
    n->args.push_back(is_op("|") ? filters(nullptr, false) : nullptr);
    n->body = block("endset");
    return done(std::move(n));
  }

  NodePtr macro_statement() {
    NodePtr n = node(NodeKind::kMacro);
    ++at_;
    n->name = expect_name("the macro's name");
    expect_op("(");
    while (!skip_op(")")) {
      std::string name = expect_name("a parameter");
      n->named.emplace_back(std::move(name), skip_op("=") ? expression() : nullptr);
      if (!is_op(")")) expect_op(",");
    }
    const int loops = std::exchange(loops_, 0);
    n->body = block("endmacro");
    loops_ = loops;
    return done(std::move(n));
  }

  NodePtr with_statement() {
    NodePtr n = node(NodeKind::kWith);
    ++at_;
    while (now().kind != TK::kBlockEnd) {
      if (!n->named.empty()) expect_op(",");
      std::string name = expect_name("a name");
      expect_op("=");
      n->named.emplace_back(std::move(name), expression());
    }
    n->body = block("endwith");
    return done(std::move(n));
  }

  // --- expressions

  bool tuple_ends() const {
    return now().kind == TK::kBlockEnd || now().kind == TK::kOutputEnd || is_op(")") || is_word("recursive");
  }

  // One expression, or several with commas.
  NodePtr tuple(bool conditional) {
    NodePtr first = conditional ? expression() : disjunction();
    if (!is_op(",")) return first;
    NodePtr n = node(NodeKind::kTuple);
    n->args.push_back(std::move(first));
    while (skip_op(",")) {
      if (tuple_ends()) break;
      n->args.push_back(conditional ? expression() : disjunction());
    }
    return done(std::move(n));
  }

  NodePtr expression() {
    const Nested guard(*this);
    NodePtr value = disjunction();
    while (is_word("if")) {
      NodePtr n = node(NodeKind::kConditional);
      ++at_;
      n->args.push_back(std::move(value));
      n->args.push_back(disjunction());
      n->args.push_back(skip_word("else") ? expression() : nullptr);
      value = done(std::move(n));
    }
    return value;
  }

  NodePtr disjunction() {
    NodePtr left = conjunction();
    while (skip_word("or")) left = with(NodeKind::kOr, "", std::move(left), conjunction());
    return left;
  }
  NodePtr conjunction() {
    NodePtr left = negation();
    while (skip_word("and")) left = with(NodeKind::kAnd, "", std::move(left), negation());
    return left;
  }
  NodePtr negation() {
    const Nested guard(*this);
    if (skip_word("not")) return with(NodeKind::kNot, "", negation());
    return comparison();
  }

  NodePtr comparison() {
    NodePtr first = sum();
    NodePtr n = node(NodeKind::kCompare);
    while (true) {
      std::string word;
      if (now().kind == TK::kOperator && (now().text == "==" || now().text == "!=" || now().text == "<" ||
                                          now().text == "<=" || now().text == ">" || now().text == ">="))
        word = now().text;
      else if (is_word("in"))
        word = "in";
      else if (is_word("not") && ahead().kind == TK::kName && ahead().text == "in")
        word = "not in";
      else
        break;
      at_ += word == "not in" ? 2 : 1;
      n->words.push_back(word);
      n->args.push_back(sum());
    }
    if (n->words.empty()) return first;
    n->args.insert(n->args.begin(), std::move(first));
    return done(std::move(n));
  }

  template <typename Next>
  NodePtr binary(std::initializer_list<std::string_view> words, Next next) {
    NodePtr left = next();
    while (now().kind == TK::kOperator && std::find(words.begin(), words.end(), now().text) != words.end()) {
      const std::string word = now().text;
      ++at_;
      left = with(NodeKind::kBinary, word, std::move(left), next());
    }
    return left;
  }
  NodePtr sum() {
    return binary({"+", "-"}, [this] { return concatenation(); });
  }
  NodePtr concatenation() {
    return binary({"~"}, [this] { return product(); });
  }
  NodePtr product() {
    return binary({"*", "/", "//", "%"}, [this] { return power(); });
  }
  NodePtr power() {
    return binary({"**"}, [this] { return unary(true); });
  }

  NodePtr unary(bool filtered) {
    const Nested guard(*this);
    NodePtr n;
    if (skip_op("-"))
      n = with(NodeKind::kNegative, "", unary(false));
    else if (skip_op("+"))
      n = with(NodeKind::kPositive, "", unary(false));
    else
      n = primary();
    n = postfix(std::move(n));
    return filtered ? filters(std::move(n), false) : std::move(n);
  }

  NodePtr primary() {
    const Token& token = now();
    NodePtr n;
    if (token.kind == TK::kName) {
      const std::string& word = token.text;
      if (word == "true" || word == "True" || word == "false" || word == "False")
        n = literal(Value::boolean(word == "true" || word == "True"));
      else if (word == "none" || word == "None")
        n = literal(Value::none());
      else
        n = node(NodeKind::kName, word);
      ++at_;
    } else if (token.kind == TK::kString) {
      std::string text;
      n = literal(Value::none());
      while (now().kind == TK::kString) text += tokens_[at_++].text;
      n->literal = Value::text(std::move(text));
    } else if (token.kind == TK::kInt) {
      std::int64_t value = 0;
      const auto end = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      if (end.ec != std::errc()) unknown(fmt::format("{} is no whole number of 64 bits", token.text));
      n = literal(Value::integer(value));
      ++at_;
    } else if (token.kind == TK::kFloat) {
      n = literal(Value::floating(std::strtod(token.text.c_str(), nullptr)));
      ++at_;
    } else if (skip_op("(")) {
      if (skip_op(")")) return node(NodeKind::kTuple);
      n = tuple(true);
      expect_op(")");
    } else if (skip_op("[")) {
      n = node(NodeKind::kList);
      while (!skip_op("]")) {
        n->args.push_back(expression());
        if (!is_op("]")) expect_op(",");
      }
      n = done(std::move(n));
    } else if (skip_op("{")) {
      n = node(NodeKind::kDict);
      while (!skip_op("}")) {
        n->args.push_back(expression());
        expect_op(":");
        n->args.push_back(expression());
        if (!is_op("}")) expect_op(",");
      }
      n = done(std::move(n));
    } else {
      bad(token.text.empty() ? "a value is missing" : fmt::format("'{}' is not expected here", token.text));
    }
    return n;
  }

  NodePtr postfix(NodePtr n) {
    while (true) {
      if (skip_op(".")) {
        if (now().kind == TK::kInt) {
          NodePtr index = literal(Value::integer(std::atoll(now().text.c_str())));
          ++at_;
          n = with(NodeKind::kIndex, "", std::move(n), std::move(index));
        } else {
          NodePtr attribute = node(NodeKind::kAttribute);
          attribute->name = expect_name("an attribute's name");
          attribute->args.push_back(std::move(n));
          n = done(std::move(attribute));
        }
      } else if (skip_op("[")) {
        n = subscript(std::move(n));
      } else if (is_op("(")) {
        n = call(std::move(n));
      } else {
        return n;
      }
    }
  }

  NodePtr subscript(NodePtr object) {
    NodePtr n = node(NodeKind::kIndex);
    n->args.push_back(std::move(object));
    const auto part = [&]() -> NodePtr { return is_op(":") || is_op("]") ? nullptr : expression(); };
    NodePtr first = part();
    if (first == nullptr && !is_op(":")) bad("an index is missing");
    n->args.push_back(std::move(first));
    if (skip_op(":")) {
      n->kind = NodeKind::kSlice;
      n->args.push_back(part());
      n->args.push_back(skip_op(":") ? part() : nullptr);
    }
    if (is_op(",")) unknown("indices of several parts are not known");
    expect_op("]");
    return done(std::move(n));
  }

  void arguments(Node& n) {
    expect_op("(");
    while (!skip_op(")")) {
      if (is_op("*") || is_op("**")) unknown("arguments out of a list (*, **) are not known");
      if (now().kind == TK::kName && ahead().kind == TK::kOperator && ahead().text == "=") {
        std::string name = now().text;
        at_ += 2;
        n.named.emplace_back(std::move(name), expression());
      } else {
        if (!n.named.empty()) bad("an argument without a name behind one with a name");
        n.args.push_back(expression());
      }
      if (!is_op(")")) expect_op(",");
    }
  }

  NodePtr call(NodePtr callee) {
    NodePtr n = node(NodeKind::kCall);
    n->args.push_back(std::move(callee));
    arguments(*n);
    return done(std::move(n));
  }

  // x | name(...) and x is name(...); `bare`: the first has no bar in front of it.
  NodePtr filters(NodePtr n, bool bare) {
    while (true) {
      if (bare || skip_op("|")) {
        bare = false;
        NodePtr filter = node(NodeKind::kFilter);
        filter->name = expect_name("a filter's name");
        filter->args.push_back(std::move(n));
        if (is_op("(")) arguments(*filter);
        n = done(std::move(filter));
      } else if (n != nullptr && is_word("is")) {
        n = test(std::move(n));
      } else if (n != nullptr && is_op("(")) {
        n = call(std::move(n));
      } else {
        return n;
      }
    }
  }

  NodePtr test(NodePtr subject) {
    ++at_;
    const bool inverted = skip_word("not");
    NodePtr n = node(NodeKind::kTest);
    n->name = expect_name("a test's name");
    n->args.push_back(std::move(subject));
    if (is_op("(")) {
      arguments(*n);
    } else if ((now().kind == TK::kName && !is_word("else") && !is_word("or") && !is_word("and")) ||
               now().kind == TK::kString || now().kind == TK::kInt || now().kind == TK::kFloat ||
               is_op("[") || is_op("{")) {
      if (is_word("is")) bad("one test behind another");
      n->args.push_back(postfix(primary()));
    }
    n = done(std::move(n));
    return inverted ? with(NodeKind::kNot, "", std::move(n)) : std::move(n);
  }

  std::vector<Token> tokens_;
  const std::string& where_;
  std::size_t at_ = 0;
  int nested_ = 0, loops_ = 0;
};

}  // namespace

Body parse(std::string_view source, const std::string& where) {
  return Parser(tokenize(source, where), where).run();
}

}  // namespace pare::jinja
