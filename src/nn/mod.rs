//! Layers and networks, with PyTorch's parameter names.
