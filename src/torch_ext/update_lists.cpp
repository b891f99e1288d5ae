// An optimizer's step by libtorch's operations on lists of tensors: the rules of kernels/update.h for tensors that are not in
// host memory. Called from update.rs.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "guard.h"
#include "kernels/update_loops.h"

namespace {

using List = std::vector<at::Tensor>;

List list(const at::Tensor* const* tensors, size_t count) {
  List result;
  result.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    result.push_back(*tensors[i]);
  }
  return result;
}

List root_plus(const List& squares, double divisor, double eps) {
  List root = at::_foreach_sqrt(squares);
  at::_foreach_div_(root, divisor);
  at::_foreach_add_(root, eps);
  return root;
}

void adam(const dingo::AdamOptions& o, const List& parameters, const List& gradients, const List* slots) {
  const List &exp_avgs = slots[0], &exp_avg_sqs = slots[1];
  at::_foreach_lerp_(exp_avgs, gradients, 1.0 - o.beta1);
  at::_foreach_mul_(exp_avg_sqs, o.beta2);
  at::_foreach_addcmul_(exp_avg_sqs, gradients, gradients, 1.0 - o.beta2);
  if (o.amsgrad) {
    at::_foreach_maximum_(slots[2], exp_avg_sqs);
  }
  const List denominators = root_plus(o.amsgrad ? slots[2] : exp_avg_sqs, o.root_correction, o.eps);
  if (o.shrink != 1.0) {
    at::_foreach_mul_(parameters, o.shrink);
  }
  at::_foreach_addcdiv_(parameters, exp_avgs, denominators, -o.step_size);
}

void sgd(const dingo::SgdOptions& o, const List& parameters, const List& gradients, const List* slots) {
  if (!o.has_buffer) {
    at::_foreach_add_(parameters, gradients, -o.lr);
    return;
  }
  const List& buffers = slots[0];
  at::_foreach_mul_(buffers, o.keep);
  at::_foreach_add_(buffers, gradients, o.take);
  if (o.nesterov) {
    at::_foreach_add_(parameters, gradients, -o.lr);
    at::_foreach_add_(parameters, buffers, -o.lr * o.momentum);
  } else {
    at::_foreach_add_(parameters, buffers, -o.lr);
  }
}

void rms_prop(const dingo::RmsPropOptions& o, const List& parameters, const List& gradients, const List* slots) {
  const List& square_avgs = slots[0];
  at::_foreach_mul_(square_avgs, o.alpha);
  at::_foreach_addcmul_(square_avgs, gradients, gradients, 1.0 - o.alpha);
  List variances = square_avgs;
  if (o.centered) {
    const List& grad_avgs = slots[o.has_buffer ? 2 : 1];
    at::_foreach_lerp_(grad_avgs, gradients, 1.0 - o.alpha);
    variances = at::_foreach_addcmul(square_avgs, grad_avgs, grad_avgs, -1.0);
  }
  const List denominators = root_plus(variances, 1.0, o.eps);
  if (o.has_buffer) {
    const List& buffers = slots[1];
    at::_foreach_mul_(buffers, o.momentum);
    at::_foreach_addcdiv_(buffers, gradients, denominators, 1.0);
    at::_foreach_add_(parameters, buffers, -o.lr);
  } else {
    at::_foreach_addcdiv_(parameters, gradients, denominators, -o.lr);
  }
}

void adagrad(const dingo::AdagradOptions& o, const List& parameters, const List& gradients, const List* slots) {
  at::_foreach_addcmul_(slots[0], gradients, gradients, 1.0);
  at::_foreach_addcdiv_(parameters, gradients, root_plus(slots[0], 1.0, o.eps), -o.lr);
}

double weight_decay(const dingo::ElementUpdate& u) {
  switch (u.rule) {
    case dingo::Rule::adam: return u.adam.l2;
    case dingo::Rule::sgd: return u.sgd.l2;
    case dingo::Rule::rms_prop: return u.rms_prop.l2;
    case dingo::Rule::adagrad: return u.adagrad.l2;
  }
  return 0.0;
}

}  // namespace

// `slots`: first all tensors of the rule's first slot, then all of its second, and so on.
extern "C" char* dingo_update_lists(const dingo::ElementUpdate* element, size_t count, const at::Tensor* const* parameters,
                                    const at::Tensor* const* gradients, const at::Tensor* const* slots,
                                    double inverse_scale) {
  return dingo::guard([&] {
    if (count == 0) {
      return;
    }
    at::NoGradGuard no_grad;
    const List all_parameters = list(parameters, count);
    // Gradients stay as they are.
    List all_gradients = list(gradients, count);
    const double l2 = weight_decay(*element);
    if (inverse_scale != 1.0) {
      all_gradients = at::_foreach_mul(all_gradients, inverse_scale);
    }
    if (l2 != 0.0) {
      all_gradients = at::_foreach_add(all_gradients, all_parameters, l2);
    }
    List all_slots[dingo::kMaxSlots];
    for (int slot = 0; slot < element->slots(); ++slot) {
      all_slots[slot] = list(slots + slot * count, count);
    }
    switch (element->rule) {
      case dingo::Rule::adam: return adam(element->adam, all_parameters, all_gradients, all_slots);
      case dingo::Rule::sgd: return sgd(element->sgd, all_parameters, all_gradients, all_slots);
      case dingo::Rule::rms_prop: return rms_prop(element->rms_prop, all_parameters, all_gradients, all_slots);
      case dingo::Rule::adagrad: return adagrad(element->adagrad, all_parameters, all_gradients, all_slots);
    }
  });
}
