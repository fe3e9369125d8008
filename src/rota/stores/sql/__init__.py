"""What stores that speak SQL share: columns made from records, the schema, migrations."""
