"""A package whose inner module holds state: `import support.state_package.part` leads to it through attributes of modules."""
