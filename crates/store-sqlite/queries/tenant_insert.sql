INSERT INTO tenants (name) VALUES (?1)
