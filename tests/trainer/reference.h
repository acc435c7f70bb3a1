// GPT-2 once more, as plainly as it can be said: scalars in f64, written from the formulas, no backward pass of its
// own. The loss is a template over the scalar: with double it can be differenced, with Var (reverse-mode
// differentiation over a tape of elementary operations) it yields the gradient of every parameter. Shares nothing with
// tools/trainer.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace reference {

// ---- Reverse-mode differentiation

// One operation: where its (at most two) arguments are, and its derivatives by them.
struct Node {
  size_t a, b;
  double da, db;
};
inline thread_local std::vector<Node> tape;

struct Var {
  double value = 0;
  size_t node = 0;  // 0: a constant
  Var() = default;
  Var(double constant) : value(constant) {}  // NOLINT: implicit on purpose
  Var(double v, Node n) : value(v), node(tape.size()) { tape.push_back(n); }
};
inline Var operator+(Var a, Var b) { return {a.value + b.value, Node{a.node, b.node, 1, 1}}; }
inline Var operator-(Var a, Var b) { return {a.value - b.value, Node{a.node, b.node, 1, -1}}; }
inline Var operator*(Var a, Var b) { return {a.value * b.value, Node{a.node, b.node, b.value, a.value}}; }
inline Var operator/(Var a, Var b) {
  return {a.value / b.value, Node{a.node, b.node, 1 / b.value, -a.value / (b.value * b.value)}};
}
inline Var exp(Var a) { return {std::exp(a.value), Node{a.node, 0, std::exp(a.value), 0}}; }
inline Var log(Var a) { return {std::log(a.value), Node{a.node, 0, 1 / a.value, 0}}; }
inline Var sqrt(Var a) { return {std::sqrt(a.value), Node{a.node, 0, 0.5 / std::sqrt(a.value), 0}}; }
inline Var tanh(Var a) {
  const double t = std::tanh(a.value);
  return {t, Node{a.node, 0, 1 - t * t, 0}};
}

// d result / d node, for every node.
inline std::vector<double> derivatives(Var result) {
  std::vector<double> d(tape.size(), 0.0);
  d[result.node] = 1;
  for (size_t n = tape.size(); n-- > 1;) {
    d[tape[n].a] += tape[n].da * d[n];
    d[tape[n].b] += tape[n].db * d[n];
  }
  return d;
}

// ---- The model

struct Shape {
  size_t layers, heads, channels, vocab;
};
template <class S>
using Vector = std::vector<S>;
template <class S>
using Rows = std::vector<std::vector<S>>;
// By "unit.name"; matrices row-major. The head uses "embedding.wte.weight".
template <class S>
using Parameters = std::map<std::string, std::vector<S>>;

template <class S>
Vector<S> normalize(const Vector<S>& x, const Vector<S>& weight, const Vector<S>& bias) {
  using std::sqrt;
  const double n = static_cast<double>(x.size());
  S mean = 0, variance = 0;
  for (const S& v : x) mean = mean + v / n;
  for (const S& v : x) variance = variance + (v - mean) * (v - mean) / n;
  Vector<S> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back((x[i] - mean) / sqrt(variance + 1e-5) * weight[i] + bias[i]);
  return y;
}

template <class S>
Vector<S> affine(const Vector<S>& x, const Vector<S>& weight, const Vector<S>& bias) {
  Vector<S> y = bias;
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t i = 0; i < x.size(); ++i) y[o] = y[o] + x[i] * weight[i * y.size() + o];
  }
  return y;
}

template <class S>
S gelu(S x) {
  using std::tanh;
  return x * 0.5 * (S(1) + tanh(S(std::sqrt(2 / M_PI)) * (x + S(0.044715) * x * x * x)));
}

template <class S>
Vector<S> softmax(const Vector<S>& x) {
  using std::exp;
  Vector<S> y;
  S sum = 0;
  for (const S& v : x) {
    y.push_back(exp(v));
    sum = sum + y.back();
  }
  for (S& v : y) v = v / sum;
  return y;
}

// qkv: one row per position, queries then keys then values.
template <class S>
Vector<S> attend(const Shape& shape, const Rows<S>& qkv, size_t position) {
  const size_t width = shape.channels / shape.heads;
  Vector<S> out;
  for (size_t h = 0; h < shape.heads; ++h) {
    Vector<S> scores;
    for (size_t k = 0; k <= position; ++k) {
      S dot = 0;
      for (size_t i = h * width; i < (h + 1) * width; ++i) dot = dot + qkv[position][i] * qkv[k][shape.channels + i];
      scores.push_back(dot / std::sqrt(static_cast<double>(width)));
    }
    const Vector<S> weights = softmax(scores);
    for (size_t i = h * width; i < (h + 1) * width; ++i) {
      S sum = 0;
      for (size_t k = 0; k <= position; ++k) sum = sum + weights[k] * qkv[k][2 * shape.channels + i];
      out.push_back(sum);
    }
  }
  return out;
}

template <class S>
void block(const Shape& shape, const Parameters<S>& p, const std::string& unit, Rows<S>& stream) {
  const auto get = [&](const char* name) -> const Vector<S>& { return p.at(unit + "." + name); };
  Rows<S> qkv;
  for (const auto& x : stream) {
    qkv.push_back(
        affine(normalize(x, get("ln_1.weight"), get("ln_1.bias")), get("attn.c_attn.weight"), get("attn.c_attn.bias")));
  }
  for (size_t t = 0; t < stream.size(); ++t) {
    Vector<S>& x = stream[t];
    const Vector<S> a = affine(attend(shape, qkv, t), get("attn.c_proj.weight"), get("attn.c_proj.bias"));
    for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] + a[i];
    Vector<S> wide =
        affine(normalize(x, get("ln_2.weight"), get("ln_2.bias")), get("mlp.c_fc.weight"), get("mlp.c_fc.bias"));
    for (S& v : wide) v = gelu(v);
    const Vector<S> m = affine(wide, get("mlp.c_proj.weight"), get("mlp.c_proj.bias"));
    for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] + m[i];
  }
}

// One sequence: a row of logits per token.
template <class S>
Rows<S> logits(const Shape& shape, const Parameters<S>& p, const std::vector<int32_t>& tokens) {
  const Vector<S>& table = p.at("embedding.wte.weight");
  Rows<S> stream;
  for (size_t t = 0; t < tokens.size(); ++t) {
    Vector<S> x;
    for (size_t i = 0; i < shape.channels; ++i) {
      x.push_back(table[static_cast<size_t>(tokens[t]) * shape.channels + i] +
                  p.at("embedding.wpe.weight")[t * shape.channels + i]);
    }
    stream.push_back(x);
  }
  for (size_t l = 0; l < shape.layers; ++l) block(shape, p, "h." + std::to_string(l), stream);
  Rows<S> out;
  for (const auto& x : stream) {
    const Vector<S> y = normalize(x, p.at("head.ln_f.weight"), p.at("head.ln_f.bias"));
    Vector<S> row;
    for (size_t v = 0; v < shape.vocab; ++v) {
      S dot = 0;
      for (size_t i = 0; i < shape.channels; ++i) dot = dot + y[i] * table[v * shape.channels + i];
      row.push_back(dot);
    }
    out.push_back(row);
  }
  return out;
}

// The sum of the losses of all targets that are not negative. One vector per sequence.
template <class S>
S loss(const Shape& shape, const Parameters<S>& p, const std::vector<std::vector<int32_t>>& tokens,
       const std::vector<std::vector<int32_t>>& targets) {
  using std::log;
  S sum = 0;
  for (size_t s = 0; s < tokens.size(); ++s) {
    const Rows<S> rows = logits(shape, p, tokens[s]);
    for (size_t t = 0; t < rows.size(); ++t) {
      if (targets[s][t] >= 0) sum = sum - log(softmax(rows[t])[static_cast<size_t>(targets[s][t])]);
    }
  }
  return sum;
}

struct LossAndGradient {
  double loss;
  Parameters<double> gradient;
};

inline LossAndGradient loss_and_gradient(const Shape& shape, const Parameters<double>& p,
                                         const std::vector<std::vector<int32_t>>& tokens,
                                         const std::vector<std::vector<int32_t>>& targets) {
  tape.assign(1, Node{0, 0, 0, 0});
  Parameters<Var> vars;
  for (const auto& [name, values] : p) {
    for (const double v : values) vars[name].push_back(Var(v, Node{0, 0, 0, 0}));
  }
  const Var result = loss(shape, vars, tokens, targets);
  const std::vector<double> d = derivatives(result);
  LossAndGradient out{result.value, {}};
  for (const auto& [name, values] : vars) {
    for (const Var& v : values) out.gradient[name].push_back(d[v.node]);
  }
  tape.clear();
  return out;
}

}  // namespace reference
