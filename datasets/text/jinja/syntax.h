// A template as a tree. Source of the language: jinja.palletsprojects.com/en/stable/templates, with what
// transformers adds to it (utils/chat_template_utils.py): trim_blocks, lstrip_blocks, break and continue,
// {% generation %}.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/text/jinja/value.h"
#include "engine/base/error.h"

namespace pare::jinja {

enum class NodeKind {
  // expressions
  kLiteral,
  kName,
  kList,
  kTuple,
  kDict,       // key, value, key, value ...
  kAttribute,  // args[0].name
  kIndex,      // args[0][args[1]]
  kSlice,      // args[0][args[1]:args[2]:args[3]], null where left out
  kCall,       // args[0](args[1] ..., named)
  kFilter,     // args[0] | name(args[1] ..., named); args[0] null: what a block rendered
  kTest,       // args[0] is name(args[1] ...)
  kNot,
  kNegative,
  kPositive,
  kBinary,   // name: + - * / // % ** ~
  kCompare,  // args[0] words[0] args[1] words[1] args[2] ...
  kAnd,
  kOr,
  kConditional,  // args[0] if args[1] else args[2] (null: left out)
  // statements
  kText,         // name
  kOutput,       // args[0]
  kIf,           // args[0]: body, otherwise
  kFor,          // args[0] in args[1] if args[2] (null: left out): body, otherwise
  kSet,          // args[0] = args[1]
  kSetBlock,     // args[0] = body, through the filters args[1] (null: none)
  kMacro,        // name(named, null where there is no default): body
  kFilterBlock,  // body through args[0]
  kWith,         // named values: body
  kBlock,        // body, as it stands ({% generation %})
  kBreak,
  kContinue
};

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

struct Node {
  NodeKind kind = NodeKind::kText;
  int line = 0;
  int depth = 1;  // of the tree below it
  std::string name;
  Value literal;
  std::vector<std::string> words;
  std::vector<NodePtr> args;
  std::vector<std::pair<std::string, NodePtr>> named;
  Body body, otherwise;
};

struct Token {
  enum class Kind {
    kText,
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kString,
    kInt,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;
};

// Errors of both: kBadFile for what is no template, kUnsupported for statements and forms that are not known;
// both with "WHERE: line N".
std::vector<Token> tokenize(std::string_view source, const std::string& where);
Body parse(std::string_view source, const std::string& where);

[[noreturn]] void refuse(ErrorCode code, const std::string& where, int line, const std::string& what);

}  // namespace pare::jinja
